package script

// Limits bounds what a program can do. The zero value means the defaults. The limits are part of how a program runs, so a lower limit can
// stop a run that replays past it.
//
// They are copied into each machine when it is made. Machines of different runs may work concurrently: they share no count.
//
// A program that would exceed Steps, Ops or Branches ends there, and cannot catch that: a program that could would have no limit. The
// effect of each other limit is written beside it.
type Limits struct {
	// Steps is the most Starlark steps that a branch may take between two waits; 20,000,000 by default.
	Steps uint64
	// Source is the size of one file in bytes, 1 MiB by default: a program with a larger one is refused before it runs. Value is that of
	// one argument, result or event in bytes of JSON, 4 MiB by default: a call with a larger one fails, which attempt catches.
	Source, Value int
	// Ops is the most operations that a run may record without waiting, 10,000 by default; it stops a loop around emit or now.
	Ops int
	// Prints is the most lines that a run may print, 1,000 by default, and PrintLine the longest in bytes, 4 KiB. The rest is cut and
	// marked; the program continues.
	Prints, PrintLine int
	// Branches is the most branches that a run may spawn, 1,000 by default.
	Branches int
}

const (
	defaultSteps     = 20_000_000
	defaultSource    = 1 << 20
	defaultValue     = 4 << 20
	defaultOps       = 10_000
	defaultPrints    = 1_000
	defaultPrintLine = 4 << 10
	defaultBranches  = 1_000
)

// withDefaults replaces zeros. README names the same numbers.
func (l Limits) withDefaults() Limits {
	if l.Steps == 0 {
		l.Steps = defaultSteps
	}
	for _, f := range []struct {
		field *int
		value int
	}{
		{&l.Source, defaultSource},
		{&l.Value, defaultValue},
		{&l.Ops, defaultOps},
		{&l.Prints, defaultPrints},
		{&l.PrintLine, defaultPrintLine},
		{&l.Branches, defaultBranches},
	} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return l
}

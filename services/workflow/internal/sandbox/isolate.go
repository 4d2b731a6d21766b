package sandbox

// niceness lets trusted programs and the service itself go first.
const niceness = 5

// Isolation says what keeps a child from everything that is not its pipes. Of each layer it has why it is not in force; empty: it is.
type Isolation struct {
	// Landlock refuses files, networks, and signals to and looks at processes outside of the child.
	Landlock string `json:",omitempty"`
	// Seccomp refuses every system call that the child has no use for.
	Seccomp string `json:",omitempty"`
	// Undumpable closes the child's own memory to other processes of the user, and NoNewPrivileges lets it gain no rights.
	Undumpable, NoNewPrivileges string `json:",omitempty"`
}

// Layer is one of the layers of an Isolation, and why it is not in force; empty: it is.
type Layer struct{ Name, Missing string }

// Layers are all of them, by the names that operators see.
func (i Isolation) Layers() []Layer {
	return []Layer{
		{"landlock", i.Landlock},
		{"seccomp", i.Seccomp},
		{"undumpable", i.Undumpable},
		{"no_new_privileges", i.NoNewPrivileges},
	}
}

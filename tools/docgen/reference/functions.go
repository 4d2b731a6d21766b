package reference

import "github.com/lockstep-cd/lockstep/services/workflow"

// functions is the page of the Functions that programs run.
func functions(string) ([]*page, error) {
	p, err := newPage("functions.md", "the declarations in services/workflow/internal/function")
	if err != nil {
		return nil, err
	}
	p.heading(2, "Error codes")
	var codes [][]string
	for _, one := range workflow.FunctionCodes() {
		codes = append(codes, []string{code(one.Name), one.Doc})
	}
	p.table([]string{"Code", "Meaning"}, codes)
	for _, f := range workflow.Functions() {
		p.heading(2, f.Name)
		p.paragraph(f.Doc)
		by := "the workflow service"
		if f.OnCluster() {
			by = "the relay of the agent"
		}
		p.paragraph("Executed by " + by + ". " + f.Passage())
		var rows [][]string
		for _, a := range f.Reference() {
			expected := a.Expected
			if a.Required {
				expected += ", required"
			}
			rows = append(rows, []string{code(a.Name), expected, a.Doc})
		}
		p.table([]string{"Argument", "Value", "Meaning"}, rows)
	}
	return []*page{p}, nil
}

package history

import "encoding/json"

// Child is the Value of an entry of KindStart: what the run has started.
type Child struct {
	Workflow string `json:"workflow_id,omitempty"`
	// Module is a module that was submitted with the parent's program, or its main file; else Program is the text of a program.
	Module  string `json:"module,omitempty"`
	Program string `json:"program,omitempty"`
	// Inputs is a JSON object.
	Inputs json.RawMessage `json:"inputs"`
	// Detached children do not end with their parent.
	Detached bool `json:"detached,omitempty"`
}

// LabelParent is the label of a child that has the id of its parent.
const LabelParent = "lockstep.parent"

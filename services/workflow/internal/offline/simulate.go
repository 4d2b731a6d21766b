package offline

import (
	"encoding/json"

	"github.com/lockstep-cd/lockstep/pkg/event"
	"github.com/lockstep-cd/lockstep/services/workflow/internal/core/history"
)

// evaluateFunction is the Function with which programs evaluate expressions.
const evaluateFunction = "expression.evaluate"

// Evaluated is an expression or a template of a program, with its value.
type Evaluated struct {
	// Label is where it stands; it is its name where the program gives none.
	Label string `json:"label"`
	// Text is the expression, or the template.
	Text  string          `json:"text"`
	Value json.RawMessage `json:"value,omitempty"`
	// Error is why there is no value.
	Error string `json:"error,omitempty"`
}

// ReportedCheck is what the program of a check has reported.
type ReportedCheck struct {
	Phase       string `json:"phase"`
	Description string `json:"description"`
	Link        string `json:"link,omitempty"`
}

// Simulation is what a program has done, step by step.
type Simulation struct {
	// Expressions are those that were evaluated, in order.
	Expressions []Evaluated `json:"expressions"`
	// Reports are those of a check, in order.
	Reports []ReportedCheck `json:"reports"`
	// State is completed, failed, cancelled or waiting; Failure is why it failed.
	State   string `json:"state"`
	Failure string `json:"failure,omitempty"`
	// History is all that has happened, for people.
	History string `json:"history"`
}

// Simulate plays a case once, and shows what it computes. What it expects is not compared.
func Simulate(c Case, check func(history.Emit) *history.FunctionError) (Simulation, error) {
	s := Simulation{Expressions: []Evaluated{}, Reports: []ReportedCheck{}}
	compute := map[string]Carrier{}
	for name, carry := range c.Compute {
		if name == evaluateFunction {
			carry = s.recorded(carry)
		}
		compute[name] = carry
	}
	c.Compute = compute
	w := newWorld(c, check, nil)
	r, err := w.play()
	if err != nil {
		return s, err
	}
	if s.State, s.Failure = r.ended, r.failure; s.State == "" {
		s.State = "waiting"
	}
	for _, e := range r.sent {
		if e.Type != event.TypeCheckReported {
			continue
		}
		var data event.CheckReported
		if err := json.Unmarshal(e.Data, &data); err == nil { // the schema was checked when it was emitted
			s.Reports = append(s.Reports, ReportedCheck{Phase: data.Phase, Description: data.Description, Link: data.Link})
		}
	}
	s.History = w.narrative(r).String()
	return s, nil
}

// recorded has each expression that is evaluated added to a simulation.
func (s *Simulation) recorded(carry Carrier) Carrier {
	return func(key string, args json.RawMessage) (json.RawMessage, *history.FunctionError) {
		answer, failed := carry(key, args)
		var asked struct {
			Expressions []struct{ Name, Label, Expression, Template string }
		}
		var got struct{ Values map[string]json.RawMessage }
		if json.Unmarshal(args, &asked) != nil || failed == nil && json.Unmarshal(answer, &got) != nil {
			return answer, failed
		}
		for _, one := range asked.Expressions {
			e := Evaluated{Label: one.Label, Text: one.Expression + one.Template, Value: got.Values[one.Name]}
			if e.Label == "" {
				e.Label = one.Name
			}
			if failed != nil { // of the first that has none; its text says where
				e.Error = failed.Message
			}
			s.Expressions = append(s.Expressions, e)
		}
		return answer, failed
	}
}

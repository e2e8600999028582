package policy

import (
	"encoding/json"
	"fmt"

	"github.com/google/cel-go/cel"

	v1alpha1 "github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// maxCost bounds what one evaluation of a rule can cost, in the units of cel-go. Objects come from the hub and are hostile.
const maxCost = 1_000_000

// maxRules bounds the rules of one AgentPolicy.
const maxRules = 64

type celRule struct {
	spec    v1alpha1.Rule
	program cel.Program
}

// compileRules checks the expressions of an AgentPolicy.
func compileRules(rules []v1alpha1.Rule) ([]celRule, error) {
	if len(rules) == 0 {
		return nil, nil
	}
	if len(rules) > maxRules {
		return nil, fmt.Errorf("spec.rules: %d rules, at most %d are allowed", len(rules), maxRules)
	}
	env, err := cel.NewEnv(
		cel.Variable("object", cel.DynType),
		cel.Variable("kind", cel.StringType),
	)
	if err != nil {
		return nil, err
	}
	out := make([]celRule, 0, len(rules))
	for i, r := range rules {
		if r.Name == "" {
			return nil, fmt.Errorf("spec.rules[%d]: name is missing", i)
		}
		ast, issues := env.Compile(r.Expression)
		if issues.Err() != nil {
			return nil, fmt.Errorf("spec.rules[%d] (%s): %w", i, r.Name, issues.Err())
		}
		if ast.OutputType() != cel.BoolType && ast.OutputType() != cel.DynType {
			return nil, fmt.Errorf("spec.rules[%d] (%s): the expression must be a boolean, not %s", i, r.Name, ast.OutputType())
		}
		program, err := env.Program(ast, cel.CostLimit(maxCost))
		if err != nil {
			return nil, fmt.Errorf("spec.rules[%d] (%s): %w", i, r.Name, err)
		}
		out = append(out, celRule{r, program})
	}
	return out, nil
}

// rules returns the first rule that an object violates. A rule that fails to evaluate is violated.
func (c *compiled) rules(o *kind.Object, objectKind string) *ViolationError {
	if len(c.cel) == 0 {
		return nil
	}
	var object map[string]any
	if err := json.Unmarshal(o.Raw(), &object); err != nil {
		return c.violation("rules", "the object is not valid JSON")
	}
	for _, r := range c.cel {
		result, _, err := r.program.Eval(map[string]any{"object": object, "kind": objectKind})
		switch {
		case err != nil:
			return c.violation(r.spec.Name, "the rule cannot be evaluated: %v", err)
		case result.Value() == true:
		case r.spec.Message != "":
			return c.violation(r.spec.Name, "%s", r.spec.Message)
		default:
			return c.violation(r.spec.Name, "%s is false", r.spec.Expression)
		}
	}
	return nil
}

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/policy"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

var policyResource = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: v1alpha1.PolicyResource}

// policyOptions select the AgentPolicies of a command.
type policyOptions struct {
	files []string
	mode  string
}

func (p *Program) policyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Check and enforce the AgentPolicies of a workload cluster",
		Long: `An AgentPolicy limits what the hub can do on a workload cluster. Users of that cluster write it. The hub cannot
change it. The agent refuses what it forbids and shows the reason on the hub's Application.`,
	}
	cmd.AddCommand(p.policyTestCommand(), p.policyAdmissionCommand(), p.policyRBACCommand())
	return cmd
}

func (o *policyOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&o.files, "policy", nil, "File with AgentPolicies, - for standard input. If unset, those of the workload cluster.")
	cmd.Flags().Var(cmdline.Choice(&o.mode, string(kind.Managed), string(kind.Managed), string(kind.Autonomous)), "mode", "Mode of the agent.")
}

// load returns the AgentPolicies and what they depend on.
func (o *policyOptions) load(ctx context.Context, p *Program) (policy.Env, []v1alpha1.AgentPolicy, error) {
	env := policy.Env{Mode: kind.Mode(o.mode)}
	var list []v1alpha1.AgentPolicy
	if len(o.files) > 0 {
		env.ArgoNamespace = p.global.agentNamespace
		if env.ArgoNamespace == "" {
			env.ArgoNamespace = defaultNamespace
		}
		for _, file := range o.files {
			objects, err := p.readObjects(file)
			if err != nil {
				return env, nil, err
			}
			for _, raw := range objects {
				var ap v1alpha1.AgentPolicy
				if err := yaml.UnmarshalStrict(raw, &ap); err != nil {
					return env, nil, fmt.Errorf("%s: parse AgentPolicy: %w", file, err)
				}
				if ap.Kind != v1alpha1.PolicyKind {
					return env, nil, fmt.Errorf("%s: %s %s is not an AgentPolicy", file, ap.Kind, ap.Name)
				}
				list = append(list, ap)
			}
		}
	} else {
		spoke, err := p.spoke()
		if err != nil {
			return env, nil, err
		}
		env.ArgoNamespace = spoke.namespace
		found, err := spoke.dynamic.Resource(policyResource).Namespace(spoke.namespace).List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) { // without the CRD there is no AgentPolicy
			return env, nil, spoke.explain(err)
		}
		if found != nil {
			text, err := json.Marshal(found)
			if err != nil {
				return env, nil, fmt.Errorf("encode AgentPolicies: %w", err)
			}
			var policies v1alpha1.PolicyList
			if err := json.Unmarshal(text, &policies); err != nil {
				return env, nil, fmt.Errorf("decode AgentPolicies: %w", err)
			}
			list = policies.Items
		}
	}
	env.AgentNamespace = env.ArgoNamespace
	return env, list, nil
}

// readObjects returns the objects of a YAML or JSON file as JSON.
func (p *Program) readObjects(file string) ([][]byte, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(p.Stdin)
	} else {
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var out [][]byte
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var raw json.RawMessage
		switch err := decoder.Decode(&raw); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("parse %s: %w", file, err)
		case len(raw) > 0 && string(raw) != "null":
			out = append(out, raw)
		}
	}
}

// policyResult is what a policy decides about one object.
type policyResult struct {
	Object   string `json:"object"`
	Decision string `json:"decision"` // allowed, narrowed or refused
	Policy   string `json:"policy,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

func (p *Program) policyTestCommand() *cobra.Command {
	var options policyOptions
	var files []string
	cmd := p.withOutput(&cobra.Command{
		Use:   "test",
		Short: "Show what an AgentPolicy decides about Applications and AppProjects",
		Long: `Shows what the agent would do with Applications and AppProjects from the hub. If an Application has an operation,
the operation is decided too. Without --policy, the AgentPolicies of the workload cluster are used, and the default
policy if there are none.

  allowed   the object is applied as it is
  narrowed  the AppProject is applied with only what the policy allows
  refused   the object is not applied; what is on the workload cluster stays

The exit code is 3 if something is refused.`,
		Example: `  argocd-agentctl policy test -f app.yaml --agent-context w1
  argocd-agentctl policy test -f app.yaml --policy policy.yaml -o json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return cmdline.UsageErrorf("-f is missing: set the file with the Applications")
			}
			env, list, err := options.load(cmd.Context(), p)
			if err != nil {
				return err
			}
			compiled, err := policy.Compile(env, list)
			if err != nil {
				return err
			}
			results := []policyResult{}
			for _, file := range files {
				objects, err := p.readObjects(file)
				if err != nil {
					return err
				}
				for _, raw := range objects {
					decided, err := decideByPolicy(compiled, raw)
					if err != nil {
						return fmt.Errorf("%s: %w", file, err)
					}
					results = append(results, decided...)
				}
			}
			return p.showPolicyResults(results)
		},
	})
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "File with Applications and AppProjects as on the hub, - for standard input.")
	options.addFlags(cmd)
	return cmd
}

func decideByPolicy(compiled *policy.Policy, raw []byte) ([]policyResult, error) {
	var head metav1.TypeMeta
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, fmt.Errorf("parse object: %w", err)
	}
	o, err := kind.Parse(raw)
	if err != nil {
		return nil, err
	}
	name := head.Kind + " " + o.Name()
	switch head.Kind {
	case kind.Applications.Kind:
		results := []policyResult{policyResultOf(name, compiled.Application(o))}
		if operation := o.Get("operation"); operation != nil {
			results = append(results, policyResultOf("operation of "+name, compiled.Operation(o, operation)))
		}
		return results, nil
	case kind.AppProjects.Kind:
		narrowed, err := compiled.Project(o)
		result := policyResultOf(name, err)
		if err == nil && !kind.Same(o, narrowed) {
			result.Decision, result.Reason = "narrowed", "fields: "+strings.Join(kind.ShortFields(kind.LostFields(o.Get("spec"), narrowed.Get("spec"))), ", ")
		}
		return []policyResult{result}, nil
	}
	return nil, fmt.Errorf("%s is neither an Application nor an AppProject", name)
}

func policyResultOf(object string, err error) policyResult {
	if err == nil {
		return policyResult{Object: object, Decision: "allowed"}
	}
	r := policyResult{Object: object, Decision: "refused", Reason: err.Error()}
	if v, ok := errors.AsType[*policy.ViolationError](err); ok {
		r.Policy, r.Rule, r.Reason = v.Policy, v.Rule, v.Reason
	}
	return r
}

func (p *Program) showPolicyResults(results []policyResult) error {
	v := view{object: results, headings: []string{"OBJECT", "DECISION", "POLICY", "RULE", "REASON"}, empty: "The files have no objects."}
	refused := false
	for _, r := range results {
		decision, source := c(r.Decision), r.Policy
		switch r.Decision {
		case "allowed":
			decision.color = green
		case "refused":
			decision.color, refused = red, true
			if source == "" {
				source = "(default)"
			}
		default:
			decision.color = yellow
		}
		v.rows = append(v.rows, []cell{c(r.Object), decision, c(source), c(r.Rule), c(r.Reason)})
		v.names = append(v.names, r.Object)
	}
	if err := p.show(v); err != nil || !refused {
		return err
	}
	return findingsError{}
}

func (p *Program) policyAdmissionCommand() *cobra.Command {
	var options policyOptions
	var accounts []string
	cmd := &cobra.Command{
		Use:   "admission",
		Short: "Print a ValidatingAdmissionPolicy with the limits of AgentPolicies",
		Long: `Prints a ValidatingAdmissionPolicy and its binding. With them, the API server of the workload cluster refuses what
the application controller must not deploy. The agent checks what Applications ask for. The API server checks what
is written: it also covers manifests that set their own namespace, hooks, and mistakes of the agent. Both need the
same AgentPolicies: apply the output again after a change.

Namespaces and kinds are enforced. The agent alone decides about projects, repositories, operations, deletions and
CEL rules.`,
		Example: `  argocd-agentctl policy admission --agent-context w1 | kubectl --context w1 apply -f -
  argocd-agentctl policy admission --policy policy.yaml --service-account team-a/deployer`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			env, list, err := options.load(cmd.Context(), p)
			if err != nil {
				return err
			}
			if len(accounts) == 0 {
				accounts = []string{env.ArgoNamespace + "/argocd-application-controller"}
			}
			objects, err := policy.Admission(env, list, accounts)
			if err != nil {
				return err
			}
			return printObjects(p, objects)
		},
	}
	cmd.Flags().StringSliceVar(&accounts, "service-account", nil, "Service accounts to limit, NAMESPACE/NAME. If unset, that of the application controller. With impersonation, list the impersonated accounts.")
	options.addFlags(cmd)
	return cmd
}

// printObjects prints objects as a stream of YAML documents.
func printObjects[T any](p *Program, objects []T) error {
	for i, object := range objects {
		text, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("encode as YAML: %w", err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := p.Stdout.Write(text); err != nil {
			return err
		}
	}
	return nil
}

func (p *Program) policyRBACCommand() *cobra.Command {
	var options policyOptions
	var account string
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print a service account with the rights of AgentPolicies",
		Long: `Prints a ServiceAccount and its RBAC for Argo CD's impersonation: it can write what the AgentPolicies allow, and
nothing else. An AppProject names it in destinationServiceAccounts, and application.sync.impersonation.enabled must be
true in argocd-cm of the workload cluster.

RBAC has no patterns. The output covers the namespaces and kinds that exist on the workload cluster now. Print and
apply it again after a change of the AgentPolicies, a new namespace or a new CRD.`,
		Example: `  argocd-agentctl policy rbac --agent-context w1 --service-account argocd/deployer | kubectl --context w1 apply -f -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if account == "" {
				return cmdline.UsageErrorf("--service-account is missing: set NAMESPACE/NAME of the service account")
			}
			env, list, err := options.load(cmd.Context(), p)
			if err != nil {
				return err
			}
			spoke, err := p.spoke()
			if err != nil {
				return err
			}
			found, err := spoke.kube.CoreV1().Namespaces().List(cmd.Context(), metav1.ListOptions{})
			if err != nil {
				return spoke.explain(err)
			}
			namespaces := make([]string, 0, len(found.Items))
			for _, ns := range found.Items {
				namespaces = append(namespaces, ns.Name)
			}
			resources, err := spoke.resources()
			if err != nil {
				return err
			}
			objects, err := policy.RBAC(env, list, account, namespaces, resources)
			if err != nil {
				return err
			}
			return printObjects(p, objects)
		},
	}
	cmd.Flags().StringVar(&account, "service-account", "", "Service account to create, NAMESPACE/NAME.")
	options.addFlags(cmd)
	return cmd
}

// resources returns what the API server serves, without subresources.
func (c *cluster) resources() ([]policy.APIResource, error) {
	lists, err := c.kube.Discovery().ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("discover resources of the %s: %w", c.role, c.explain(err))
	}
	var out []policy.APIResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("discover resources of the %s: %w", c.role, err)
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				out = append(out, policy.APIResource{Group: gv.Group, Plural: r.Name, Kind: r.Kind, Namespaced: r.Namespaced})
			}
		}
	}
	return out, nil
}

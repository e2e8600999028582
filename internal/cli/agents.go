package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

var agentResource = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: v1alpha1.Resource}

// agents reads and writes the Agent objects of a hub.
type agents struct{ *cluster }

func (p *Program) agents() (agents, error) {
	hub, err := p.hub()
	return agents{hub}, err
}

func (a agents) in() dynamic.ResourceInterface {
	return a.dynamic.Resource(agentResource).Namespace(a.namespace)
}

// failed adds the action and a remedy to an error.
func (a agents) failed(action, name string, err error) error {
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err) && errors.As(err, &status) && (name == "" || status.Status().Details == nil || status.Status().Details.Name == ""):
		return fmt.Errorf("%s: CRD %[3]s is not installed in %[2]s: install the chart or install/crds, or set --principal-context",
			action, a.cluster, agentResource.GroupResource())
	case notFound(err):
		return fmt.Errorf("%s: agent %q not found in %s: run `argocd-agentctl agent list`", action, name, a.cluster)
	}
	return fmt.Errorf("%s: %w", action, a.explain(err))
}

func (a agents) list(ctx context.Context) (*v1alpha1.List, error) {
	list, err := a.in().List(ctx, metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		var names []string
		if names, err = a.restrictedTo(ctx); err == nil {
			list, err = listNamed(ctx, a.in(), names, metav1.ListOptions{})
		}
	}
	if err != nil {
		return nil, a.failed("list agents", "", err)
	}
	out := &v1alpha1.List{TypeMeta: metav1.TypeMeta{APIVersion: agentResource.GroupVersion().String(), Kind: v1alpha1.Kind + "List"}, Items: []v1alpha1.Agent{}}
	for i := range list.Items {
		agent, err := typed(&list.Items[i])
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, *agent)
	}
	return out, nil
}

func (a agents) get(ctx context.Context, name string) (*v1alpha1.Agent, error) {
	found, err := a.in().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, a.failed("get agent "+name, name, err)
	}
	return typed(found)
}

func (a agents) create(ctx context.Context, agent *v1alpha1.Agent) (*v1alpha1.Agent, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(agent)
	if err != nil {
		return nil, fmt.Errorf("encode agent %s: %w", agent.Name, err)
	}
	delete(content, "status")
	made, err := a.in().Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict})
	if apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create agent %s: it exists. To change it, run `argocd-agentctl agent reconfigure %s`", agent.Name, agent.Name)
	}
	if err != nil {
		return nil, a.failed("create agent "+agent.Name, "", err)
	}
	return typed(made)
}

const fieldManager = "argocd-agentctl"

// annotate returns a merge patch that sets an annotation.
func annotate(annotation, value string) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: value}}}
}

// patch applies a merge patch to an Agent.
func (a agents) patch(ctx context.Context, action, name string, change map[string]any) (*v1alpha1.Agent, error) {
	body, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	changed, err := a.in().Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return nil, a.failed(action, name, err)
	}
	return typed(changed)
}

func typed(u *unstructured.Unstructured) (*v1alpha1.Agent, error) {
	agent := &v1alpha1.Agent{}
	u.SetManagedFields(nil)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, agent); err != nil {
		return nil, fmt.Errorf("decode agent %s: %w", u.GetName(), err)
	}
	return agent, nil
}

func checkName(name string) error {
	if err := kind.ValidateAgentName(name); err != nil {
		return cmdline.UsageErrorf("%s", strings.TrimPrefix(err.Error(), string(engine.Invalid)+": "))
	}
	return nil
}

// completeNames sets the completion of arguments AGENT.
func (p *Program) completeNames(cmd *cobra.Command) {
	if words := strings.Fields(cmd.Use); len(words) > 1 && strings.Trim(words[1], "[…]") == "AGENT" && cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = p.agentNames
	}
	for _, sub := range cmd.Commands() {
		p.completeNames(sub)
	}
}

// agentNames completes names of agents.
func (p *Program) agentNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || p.global.complete(p.Env) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a, err := p.agents()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	list, err := a.list(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// clusterAccess is the content of a cluster Secret.
type clusterAccess struct {
	Server      string // without the agentName query
	BearerToken string
	Cert        []byte
	Key         []byte
	CA          []byte
}

func (c *cluster) access(ctx context.Context, agent string) (*clusterAccess, error) {
	name := "cluster-" + agent
	secret, err := c.kube.CoreV1().Secrets(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if notFound(err) {
		if _, err := (agents{c}).get(ctx, agent); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("agent %s has no cluster Secret %s in %s yet. Check that the principal is running", agent, name, c)
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s: %w", name, c.explain(err))
	}
	server, err := url.Parse(string(secret.Data["server"]))
	if err != nil || server.Host == "" {
		return nil, fmt.Errorf("Secret %s has no valid server URL", name)
	}
	server.RawQuery = ""
	var config struct {
		BearerToken     string `json:"bearerToken"`
		TLSClientConfig struct {
			CertData, KeyData, CAData []byte
		} `json:"tlsClientConfig"`
	}
	if err := json.Unmarshal(secret.Data["config"], &config); err != nil {
		return nil, fmt.Errorf("decode config of Secret %s: %w", name, err)
	}
	t := config.TLSClientConfig
	return &clusterAccess{Server: server.String(), BearerToken: config.BearerToken, Cert: t.CertData, Key: t.KeyData, CA: t.CAData}, nil
}

func (p *Program) agentPrintTLSCommand() *cobra.Command {
	var kind string
	cmd := &cobra.Command{
		Use:     "print-tls AGENT [cert|key|ca]",
		Aliases: []string{"dump-tls"},
		Short:   "Print the client certificate, key or CA that Argo CD uses for an agent",
		Long: `Prints PEM from the cluster Secret of an agent: the client certificate (cert), its key or the CA (ca) that Argo CD uses
to connect to the resource proxy.`,
		Example: `  argocd-agentctl agent print-tls w1 cert | openssl x509 -noout -text
  argocd-agentctl agent print-tls w1 ca > ca.crt`,
		RunE: p.onHub(func(ctx context.Context, hub agents, args []string) error {
			what := kind
			if len(args) > 1 {
				what = args[1]
			}
			access, err := hub.access(ctx, args[0])
			if err != nil {
				return err
			}
			text, ok := map[string][]byte{"cert": access.Cert, "key": access.Key, "ca": access.CA}[what]
			if !ok {
				return cmdline.UsageErrorf("%q: must be cert, key or ca", what)
			}
			if len(text) == 0 {
				return fmt.Errorf("the cluster Secret of %s has no %s", args[0], what)
			}
			_, err = p.Stdout.Write(text)
			return err
		}),
	}
	cmd.Flags().StringVarP(&kind, "type", "t", "cert", "")
	hide(cmd.Flags(), "type")
	return cmd
}

// recordIssued records a certificate in an annotation of an Agent before it is used, so that the deletion of the Agent
// revokes it.
func (a agents) recordIssued(ctx context.Context, now time.Time, name, annotation string, chain []byte, add func(pki.Record, pki.RecordEntry) (pki.Record, error)) error {
	entry, err := pki.EntryOf(chain)
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		agent, err := a.get(ctx, name)
		if err != nil {
			return err
		}
		if agent.DeletionTimestamp != nil {
			return fmt.Errorf("agent %s is being deleted", name)
		}
		record, err := add(pki.ParseRecord(agent.Annotations[annotation]).Valid(now), entry)
		if err != nil {
			return err
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": agent.ResourceVersion, "annotations": map[string]string{annotation: record.String()}}})
		if err != nil {
			return err
		}
		_, err = a.in().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		if apierrors.IsConflict(err) {
			return err
		}
		return a.failed("record the certificate of agent "+name, name, err)
	})
}

package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
	"github.com/argocd-agent/argocd-agent/install"
	"github.com/argocd-agent/argocd-agent/internal/agentrows"
	"github.com/argocd-agent/argocd-agent/internal/identity"
	"github.com/argocd-agent/argocd-agent/internal/identity/pki"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// replicasAnnotation is on a stopped Deployment of the existing argocd-agent. It has the former number of replicas.
const replicasAnnotation = kind.Prefix + "import-replicas"

// importSide is one side of an import: a hub, or the workload cluster of an agent.
type importSide struct {
	*cluster
	role  string // principal or agent
	agent string // if the role is agent

	old  *appsv1.Deployment // of the existing argocd-agent; nil if there is none
	ours *appsv1.Deployment // nil if there is none

	*converted
	mode   string           // of the agent
	agents []corev1.Secret  // cluster Secrets, on the hub
	auth   *identity.Method // of our principal, for an agent; nil if it is not known
}

func replicas(d *appsv1.Deployment) int32 {
	switch {
	case d == nil:
		return 0
	case d.Spec.Replicas == nil:
		return 1
	}
	return *d.Spec.Replicas
}

// runs reports whether a Deployment runs the principal or the agent, and whether it is ours. Our container has the name of
// its role, and the existing argocd-agent has no variables of a whole ConfigMap.
func runs(d *appsv1.Deployment, role string) (runs, ours bool) {
	if len(d.Spec.Template.Spec.Containers) == 0 {
		return false, false
	}
	container := &d.Spec.Template.Spec.Containers[0]
	named := d.Spec.Template.Labels[partOfLabel] == ourPartOf || strings.Contains(container.Name, "argocd-agent")
	command := append(slices.Clone(container.Command), container.Args...)
	return named && slices.Contains(command, role), container.Name == role || len(container.EnvFrom) > 0
}

// find finds the Deployments of the existing argocd-agent and of ours.
func (s *importSide) find(ctx context.Context) error {
	all, err := s.kube.AppsV1().Deployments(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Deployments: %w", s.explain(err))
	}
	s.old, s.ours = nil, nil
	for i := range all.Items {
		d := &all.Items[i]
		found, ours := runs(d, s.role)
		to := &s.old
		if ours {
			to = &s.ours
		}
		switch {
		case !found:
		case *to != nil:
			return fmt.Errorf("Deployments %s and %s both run a %s: delete one of them", (*to).Name, d.Name, s.role)
		default:
			*to = d
		}
	}
	return nil
}

// inspect reads the side and returns its plan. It changes nothing.
func (s *importSide) inspect(ctx context.Context, overrides map[string]string) error {
	if err := s.find(ctx); err != nil {
		return err
	}
	if s.old == nil {
		return fmt.Errorf("%s has no Deployment of the existing argocd-agent with a %s: there is nothing to import", s.cluster, s.role)
	}
	var err error
	read := map[string]map[string]string{}
	s.converted, err = convert(s.role, s.old, overrides, func(name string) (map[string]string, error) {
		if read[name] == nil {
			data, err := s.configMap(ctx, name)
			if err != nil {
				return nil, err
			}
			read[name] = data
		}
		return read[name], nil
	})
	if err != nil {
		return err
	}
	s.items = append(s.deploymentItems(), s.items...)
	for _, name := range slices.Sorted(maps.Keys(read)) {
		s.add("ConfigMap "+name, actKeep, "not changed. Converted settings are in ConfigMap argocd-agent-params-imported")
	}
	if err := s.services(ctx); err != nil {
		return err
	}
	if s.role == rolePrincipal {
		return s.inspectHub(ctx)
	}
	return s.inspectAgent(ctx)
}

func (s *importSide) add(object, action, format string, args ...any) {
	s.items = append(s.items, planItem{object, action, fmt.Sprintf(format, args...)})
}

var releaseTag = regexp.MustCompile(`:v?[0-9]+\.[0-9]+\.[0-9]+`)

// deploymentItems returns what happens with the Deployments.
func (s *importSide) deploymentItems() (items []planItem) {
	old := "Deployment " + s.old.Name
	add := func(object, action, format string, args ...any) {
		items = append(items, planItem{object, action, fmt.Sprintf(format, args...)})
	}
	former, stopped := s.old.Annotations[replicasAnnotation]
	switch running := replicas(s.old); {
	case running > 0 && replicas(s.ours) > 0:
		add(old, actRefuse, "it runs, and Deployment %s, too: scale one of them to 0", s.ours.Name)
	case running > 0:
		add(old, actStop, "%s, recorded for `argocd-agentctl import revert`", pluralize(int(running), "replica"))
		if s.old.Status.ReadyReplicas == 0 {
			add(old, actRisk, "no pod is ready, so hub and workload cluster may differ")
		}
	case stopped:
		add(old, actStop, "done, with %s replicas recorded", former)
	default:
		add(old, actRisk, "it is not running, so hub and workload cluster may differ")
	}
	if image := s.old.Spec.Template.Spec.Containers[0].Image; !releaseTag.MatchString(image) {
		add(old, actWarn, "version unknown: %s", image)
	}
	if owner := metav1.GetControllerOf(s.old); owner != nil {
		add(old, actRefuse, "%s %s controls it and would start it again: disable it there", owner.Kind, owner.Name)
	}
	if id := s.old.Annotations["argocd.argoproj.io/tracking-id"]; id != "" {
		add(old, actRisk, "Argo CD deploys it (%s) and may start it again: turn off auto-sync", strings.SplitN(id, ":", 2)[0])
	}
	if s.ours != nil && s.ours.Name != s.importedName() {
		add("Deployment "+s.ours.Name, actRefuse, "it runs the new %s and was not imported: delete it", s.role)
	}
	add("Deployment "+s.importedName(), actCreate, "with Roles, ServiceAccount, NetworkPolicies and ConfigMap")
	return items
}

func (s *importSide) importedName() string {
	if s.role == rolePrincipal {
		return install.ImportedPrincipal
	}
	return install.ImportedAgent
}

// podLabels are the labels of our pods.
func (s *importSide) podLabels() labels.Set {
	all := labels.Set(maps.Clone(s.pod.PodLabels))
	maps.Copy(all, labels.Set{nameLabel: "argocd-agent-" + s.role, partOfLabel: ourPartOf, componentLabel: s.role})
	return all
}

// services checks that the Services of the existing argocd-agent lead to our pods.
func (s *importSide) services(ctx context.Context) error {
	all, err := s.kube.CoreV1().Services(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Services: %w", s.explain(err))
	}
	for i := range all.Items {
		service := &all.Items[i]
		selector := labels.SelectorFromSet(service.Spec.Selector)
		switch {
		case len(service.Spec.Selector) == 0 || !selector.Matches(labels.Set(s.old.Spec.Template.Labels)):
		case selector.Matches(s.podLabels()):
			s.add("Service "+service.Name, actKeep, "leads to the new pods")
		default:
			s.add("Service "+service.Name, actRefuse, "it selects %s, which the new pods do not have: change its selector", selector)
		}
	}
	return nil
}

// secret adds a row for a Secret and returns its data.
func (s *importSide) secret(ctx context.Context, name, action, present, absent string) (map[string][]byte, error) {
	secret, err := s.kube.CoreV1().Secrets(s.namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case notFound(err) && absent != "":
		s.add("Secret "+name, actWarn, "not found: %s", absent)
		return nil, nil
	case notFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Secret %s: %w", name, s.explain(err))
	}
	s.add("Secret "+name, action, "%s", present)
	return secret.Data, nil
}

// flag returns the value of a setting of the existing argocd-agent.
func (s *importSide) flag(name, standard string) string { return cmp.Or(s.flags[name], standard) }

const (
	jwtSecret         = "argocd-agent-jwt"
	identityConfigMap = "argocd-agent-principal-identity"
	hubPasswords      = "argocd-agent-principal-userpass"
	agentPassword     = "argocd-agent-agent-userpass"
)

func (s *importSide) inspectHub(ctx context.Context) error {
	for _, one := range []struct{ name, action, present, absent string }{
		{s.flag("tls-ca-secret-name", pki.AuthoritySecret), actKeep, "CA of the agents", "the principal creates a CA, and agents must join again"},
		{s.flag("tls-secret-name", pki.PrincipalSecret), actKeep, "certificate of the principal", "the principal issues a certificate"},
		{s.flag("resource-proxy-secret-name", pki.ProxySecret), actKeep, "certificate of the resource proxy", "the principal issues a certificate"},
		{s.flag("jwt-secret-name", jwtSecret), actIgnore, "no key is needed", ""},
		{hubPasswords, actIgnore, "agents authenticate with client certificates", ""},
	} {
		if _, err := s.secret(ctx, one.name, one.action, one.present, one.absent); err != nil {
			return err
		}
	}
	if data, err := s.configMap(ctx, identityConfigMap); err != nil {
		return err
	} else if data != nil {
		s.add("ConfigMap "+identityConfigMap, actIgnore, "the UID of the hub's cluster identifies the principal")
	}
	if err := s.clusterSecrets(ctx); err != nil {
		return err
	}
	for i := range s.agents {
		secret, name := &s.agents[i], s.agents[i].Labels[agentNameLabel]
		s.add("Secret "+secret.Name, actKeep, "of agent %s. A copy is in Secret %s", name, backupName(secret.Name))
		if err := kind.ValidateAgentName(name); err != nil {
			s.add("Agent "+name, actRefuse, "%v", err)
			continue
		}
		agent, err := agents{s.cluster}.in().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			s.add("Agent "+name, actCreate, "without a mode: it is refused until `argocd-agentctl import agent %s`", name)
		case err != nil:
			return agents{s.cluster}.failed("get agent "+name, name, err)
		default:
			found, err := typed(agent)
			if err != nil {
				return err
			}
			s.add("Agent "+name, actKeep, "mode %s, %s", cmp.Or(found.Spec.Mode, "not set"), agentrows.StateOf(found))
		}
	}
	return nil
}

const agentNameLabel = kind.Prefix + "agent-name"

// backupLabel is on the copy of a cluster Secret. Its value is the UID of the Secret.
const backupLabel = kind.Prefix + "import-backup-of"

func backupName(secret string) string { return secret + "-before-import" }

// clusterSecrets lists the cluster Secrets of agents.
func (s *importSide) clusterSecrets(ctx context.Context) error {
	list, err := s.kube.CoreV1().Secrets(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: agentNameLabel + ",argocd.argoproj.io/secret-type=cluster"})
	if err != nil {
		return fmt.Errorf("list cluster Secrets: %w", s.explain(err))
	}
	s.agents = list.Items
	return nil
}

func (s *importSide) inspectAgent(ctx context.Context) error {
	s.mode = s.flag("agent-mode", string(kind.Autonomous))
	s.add("Agent "+s.agent, actConvert, "gets mode %s", s.mode)
	access := "reads and writes of the hub are allowed, exec sessions only with --live-exec"
	if s.flags["enable-resource-proxy"] == "false" {
		access = "not allowed, as before"
	}
	s.add("live access", actConvert, "%s", access)
	certificate := s.flag("tls-secret-name", pki.ClientSecret)
	data, err := s.secret(ctx, certificate, actKeep, "certificate of the agent", "")
	if err != nil {
		return err
	}
	s.checkCertificate(certificate, data["tls.crt"])
	if _, err := s.secret(ctx, s.flag("root-ca-secret-name", pki.AuthoritySecret), actKeep, "CA of the principal", "the agent cannot verify the principal"); err != nil {
		return err
	}
	if _, err := s.secret(ctx, agentPassword, actIgnore, "the agent authenticates with its certificate", ""); err != nil {
		return err
	}
	return s.applications(ctx)
}

// checkCertificate checks that the certificate names the agent. A wrong context would move another agent.
func (s *importSide) checkCertificate(secret string, text []byte) {
	switch block, _ := pem.Decode(bytes.TrimSpace(text)); {
	case s.flags["insecure-plaintext"] == "true" || s.flags["tls-client-cert"] != "": // a mesh, or a file
	case block == nil:
		s.add("Secret "+secret, actRefuse, "it has no certificate: run `argocd-agentctl pki issue agent %s`", s.agent)
	default:
		certificate, err := x509.ParseCertificate(block.Bytes)
		switch {
		case err != nil:
			s.add("Secret "+secret, actRefuse, "invalid certificate: %v", err)
		case s.auth == nil && certificate.Subject.CommonName == s.agent:
		case s.auth == nil && len(certificate.URIs) == 0:
			s.add("Secret "+secret, actRefuse, "it names agent %q: check --agent-context", certificate.Subject.CommonName)
		case s.auth == nil:
			s.add("Secret "+secret, actWarn, "it was not checked that it names agent %s, because the new principal was not found", s.agent)
		case s.auth.Plaintext(): // a mesh names the agent
		default:
			if name, err := s.auth.AgentFromCertificate(certificate); err != nil {
				s.add("Secret "+secret, actRefuse, "the new principal does not accept it: %v", err)
			} else if name != s.agent {
				s.add("Secret "+secret, actRefuse, "it names agent %q: check --agent-context", name)
			}
		}
	}
}

// authMethod returns how our principal finds the name of an agent in its certificate. It is nil if there is no principal yet.
func (s *importSide) authMethod(ctx context.Context) (*identity.Method, error) {
	if s.ours == nil {
		return nil, nil
	}
	setting := commonNameMethod
	for _, from := range s.ours.Spec.Template.Spec.Containers[0].EnvFrom {
		if from.ConfigMapRef == nil {
			continue
		}
		data, err := s.configMap(ctx, from.ConfigMapRef.Name)
		if err != nil {
			return nil, err
		}
		setting = cmp.Or(data["ARGOCD_PRINCIPAL_AUTH"], setting)
	}
	method, err := identity.ParseMethod(setting)
	if err != nil {
		return nil, fmt.Errorf("setting ARGOCD_PRINCIPAL_AUTH of the new principal: %w", err)
	}
	return method, nil
}

// allNamespaces reports whether the agent has Applications outside its Argo CD namespace.
func (s *importSide) allNamespaces() bool {
	return s.flags["destination-based-mapping"] == "true" || s.flags["allowed-namespaces"] != ""
}

var applicationResource = schema.GroupVersionResource{Group: "argoproj.io", Version: "v1alpha1", Resource: "applications"}

// applications reads the Applications of the workload cluster.
func (s *importSide) applications(ctx context.Context) error {
	namespace := s.namespace
	if s.allNamespaces() {
		namespace = ""
	}
	list, err := s.dynamic.Resource(applicationResource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Applications: %w", s.explain(err))
	}
	total, copies, unsynced := len(list.Items), 0, []string(nil)
	for i := range list.Items {
		u := &list.Items[i]
		if u.GetAnnotations()[kind.SourceUID] != "" {
			copies++
		}
		status, _, _ := unstructured.NestedString(u.Object, "status", "sync", "status")
		if status != "Synced" {
			unsynced = append(unsynced, u.GetNamespace()+"/"+u.GetName())
		}
	}
	slices.Sort(unsynced)
	detail := fmt.Sprintf("%d with annotation %s, recognized as copies from the hub", copies, kind.SourceUID)
	if s.mode == string(kind.Autonomous) {
		detail = "their copies on the hub are recognized by annotation " + kind.SourceUID
	}
	s.add(pluralize(total, "Application"), actKeep, "%s", detail)
	if n := len(unsynced); n > 0 {
		names := strings.Join(unsynced[:min(n, 5)], ", ")
		if n > 5 {
			names += " and " + strconv.Itoa(n-5) + " more"
		}
		s.add(pluralize(n, "Application"), actRisk, "not in sync: %s", names)
	}
	return nil
}

// hubReady returns why agents cannot be imported yet, or nil.
func (s *importSide) hubReady() error {
	switch {
	case replicas(s.old) > 0:
		return errors.New("the existing principal still runs: run `argocd-agentctl import hub` first")
	case s.ours == nil || s.ours.Status.ReadyReplicas == 0:
		return errors.New("the new principal is not ready: run `argocd-agentctl import hub` first")
	}
	return nil
}

// blocking returns the rows that prevent the import.
func blocking(items []planItem, acceptRisks bool) (found []planItem) {
	for _, item := range items {
		if item.Action == actRefuse || item.Action == actDecide || item.Action == actRisk && !acceptRisks {
			found = append(found, item)
		}
	}
	return found
}

// isSynced reports whether an agent is connected and no item differs.
func isSynced(agent *v1alpha1.Agent) bool {
	return agent.Status.Connected && meta.IsStatusConditionTrue(agent.Status.Conditions, v1alpha1.ConditionSynced)
}

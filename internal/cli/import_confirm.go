package cli

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// leftover is an object of the existing argocd-agent that is no longer used.
type leftover struct {
	kind, name string
	resource   schema.GroupVersionResource
	clustered  bool
	uid        string
	version    string
	user       string // another program that uses it, so that it stays; empty if there is none
}

var rbacVersion = rbacv1.SchemeGroupVersion

// leftovers returns the objects of the existing program. Those without a user are deleted: only the existing program used
// them. Services are not among them: they lead to our pods.
func (s *importSide) leftovers(ctx context.Context) ([]leftover, error) {
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	pod := &s.old.Spec.Template.Spec
	account := pod.ServiceAccountName
	candidates := []leftover{{kind: "Deployment", name: s.old.Name, resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}}}
	for _, variable := range pod.Containers[0].Env {
		if from := variable.ValueFrom; from != nil && from.ConfigMapKeyRef != nil && !slices.ContainsFunc(candidates, func(l leftover) bool { return l.kind == "ConfigMap" && l.name == from.ConfigMapKeyRef.Name }) {
			candidates = append(candidates, leftover{kind: "ConfigMap", name: from.ConfigMapKeyRef.Name, resource: core("configmaps")})
		}
	}
	secrets := []string{agentPassword}
	if s.role == rolePrincipal {
		candidates = append(candidates, leftover{kind: "ConfigMap", name: identityConfigMap, resource: core("configmaps")})
		secrets = []string{s.flag("jwt-secret-name", jwtSecret), hubPasswords}
		copies, err := s.kube.CoreV1().Secrets(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: backupLabel})
		if err != nil {
			return nil, fmt.Errorf("list copies of cluster Secrets: %w", s.explain(err))
		}
		for i := range copies.Items { // also of Secrets that were deleted since
			secrets = append(secrets, copies.Items[i].Name)
		}
	}
	for _, name := range secrets {
		candidates = append(candidates, leftover{kind: "Secret", name: name, resource: core("secrets")})
	}
	if ours := s.ours.Spec.Template.Spec.ServiceAccountName; account != "" && account != "default" && account != ours {
		rights, err := s.rights(ctx, account)
		if err != nil {
			return nil, err
		}
		candidates = append(append(candidates, leftover{kind: "ServiceAccount", name: account, resource: core("serviceaccounts")}), rights...)
	}
	users, err := s.users(ctx)
	if err != nil {
		return nil, err
	}
	var found []leftover
	for _, one := range candidates {
		object, err := s.at(one).Get(ctx, one.name, metav1.GetOptions{})
		if notFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("get %s %s: %w", one.kind, one.name, s.explain(err))
		}
		one.uid, one.version, one.user = string(object.GetUID()), object.GetResourceVersion(), users[one.kind+" "+one.name]
		if slices.Contains(rightsKinds, one.kind) {
			one.user = users["ServiceAccount "+account]
		}
		found = append(found, one)
	}
	return found, nil
}

// rightsKinds are the kinds that rights returns.
var rightsKinds = []string{"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"}

// users returns which other program of the namespace uses a ConfigMap, a Secret or a ServiceAccount, by kind and name. Programs
// often share them: one ConfigMap can have the settings of principal and agent, or of a proxy for all of Argo CD.
func (s *importSide) users(ctx context.Context) (map[string]string, error) {
	found := map[string]string{}
	add := func(user string, pod *corev1.PodSpec) {
		for object := range usedBy(pod) {
			found[object] = user
		}
	}
	deployments, err := s.kube.AppsV1().Deployments(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Deployments: %w", s.explain(err))
	}
	for i := range deployments.Items {
		if d := &deployments.Items[i]; d.Name != s.old.Name {
			add("Deployment "+d.Name, &d.Spec.Template.Spec)
		}
	}
	stateful, err := s.kube.AppsV1().StatefulSets(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list StatefulSets: %w", s.explain(err))
	}
	for i := range stateful.Items {
		add("StatefulSet "+stateful.Items[i].Name, &stateful.Items[i].Spec.Template.Spec)
	}
	daemons, err := s.kube.AppsV1().DaemonSets(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list DaemonSets: %w", s.explain(err))
	}
	for i := range daemons.Items {
		add("DaemonSet "+daemons.Items[i].Name, &daemons.Items[i].Spec.Template.Spec)
	}
	jobs, err := s.kube.BatchV1().CronJobs(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list CronJobs: %w", s.explain(err))
	}
	for i := range jobs.Items {
		add("CronJob "+jobs.Items[i].Name, &jobs.Items[i].Spec.JobTemplate.Spec.Template.Spec)
	}
	// All pods are of other programs: the existing one has been stopped.
	pods, err := s.kube.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", s.explain(err))
	}
	for i := range pods.Items {
		add("pod "+pods.Items[i].Name, &pods.Items[i].Spec)
	}
	return found, nil
}

// usedBy returns the ConfigMaps, Secrets and the ServiceAccount that a pod names, as kind and name.
func usedBy(pod *corev1.PodSpec) map[string]bool {
	all := map[string]bool{"ServiceAccount " + pod.ServiceAccountName: true}
	for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
		for _, from := range container.EnvFrom {
			if from.ConfigMapRef != nil {
				all["ConfigMap "+from.ConfigMapRef.Name] = true
			}
			if from.SecretRef != nil {
				all["Secret "+from.SecretRef.Name] = true
			}
		}
		for _, variable := range container.Env {
			if from := variable.ValueFrom; from != nil && from.ConfigMapKeyRef != nil {
				all["ConfigMap "+from.ConfigMapKeyRef.Name] = true
			} else if from != nil && from.SecretKeyRef != nil {
				all["Secret "+from.SecretKeyRef.Name] = true
			}
		}
	}
	for _, volume := range pod.Volumes {
		if volume.ConfigMap != nil {
			all["ConfigMap "+volume.ConfigMap.Name] = true
		}
		if volume.Secret != nil {
			all["Secret "+volume.Secret.SecretName] = true
		}
		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.ConfigMap != nil {
				all["ConfigMap "+source.ConfigMap.Name] = true
			}
			if source.Secret != nil {
				all["Secret "+source.Secret.Name] = true
			}
		}
	}
	return all
}

// rights returns the roles of a ServiceAccount whose bindings bind nothing else and have its name.
func (s *importSide) rights(ctx context.Context, account string) (all []leftover, err error) {
	add := func(kind string, subjects []rbacv1.Subject, role rbacv1.RoleRef, clustered bool) {
		own := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: s.namespace}
		if len(subjects) != 1 || subjects[0] != own || role.Name != account {
			return
		}
		plural := map[string]string{"Role": "roles", "RoleBinding": "rolebindings", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"}
		for _, one := range []string{kind + "Binding", kind} {
			all = append(all, leftover{kind: one, name: account, resource: rbacVersion.WithResource(plural[one]), clustered: clustered})
		}
	}
	binding, err := s.kube.RbacV1().RoleBindings(s.namespace).Get(ctx, account, metav1.GetOptions{})
	if err == nil && binding.RoleRef.Kind == "Role" {
		add("Role", binding.Subjects, binding.RoleRef, false)
	}
	if err == nil || notFound(err) {
		var everywhere *rbacv1.ClusterRoleBinding
		if everywhere, err = s.kube.RbacV1().ClusterRoleBindings().Get(ctx, account, metav1.GetOptions{}); err == nil {
			add("ClusterRole", everywhere.Subjects, everywhere.RoleRef, true)
		}
	}
	if err != nil && !notFound(err) {
		return nil, fmt.Errorf("get the roles of ServiceAccount %s: %w", account, s.explain(err))
	}
	return all, nil
}

func (s *importSide) at(l leftover) dynamic.ResourceInterface {
	if l.clustered {
		return s.dynamic.Resource(l.resource)
	}
	return s.dynamic.Resource(l.resource).Namespace(s.namespace)
}

// remove deletes a leftover if it is unchanged since it was shown.
func (s *importSide) remove(ctx context.Context, l leftover) error {
	options := *metav1.NewPreconditionDeleteOptions(l.uid)
	options.Preconditions.ResourceVersion = &l.version
	if err := s.at(l).Delete(ctx, l.name, options); err != nil && !notFound(err) {
		return fmt.Errorf("delete %s %s: %w", l.kind, l.name, s.explain(err))
	}
	return nil
}

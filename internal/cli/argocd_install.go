package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// installer is what installed an Argo CD. It decides names, and where its settings are changed.
type installer string

const (
	byManifests installer = "manifests"
	byHelm      installer = "argo-helm"
	byOperator  installer = "argocd-operator"
)

// argoInstallation describes Argo CD in the namespace of a cluster.
type argoInstallation struct {
	unknown    bool // it could not be read, so the names are those of the manifests
	installer  installer
	instance   string // Helm release, or name of the ArgoCD object
	ha         bool
	server     *argoWorkload // nil if there is none
	controller *argoWorkload
	// Service of Redis. If there is none, that of the manifests.
	redis string
	// Secret with the Redis password, and its key.
	redisSecret, redisKey string
}

// argoWorkload is a Deployment or StatefulSet of Argo CD.
type argoWorkload struct {
	name   string
	image  string
	flags  map[string]string
	owner  string // name of the ArgoCD object that owns it, or empty
	labels map[string]string
}

// Components of Argo CD, as label app.kubernetes.io/component has them in every installation.
const (
	serverComponent     = "server"
	controllerComponent = "application-controller"
	setsComponent       = "applicationset-controller"
	argoPartOf          = "argocd"
)

// findArgo reads how Argo CD is installed. Names differ between installations, labels do not. After an error, it returns
// the names of the manifests.
func (c *cluster) findArgo(ctx context.Context) (*argoInstallation, error) {
	usual := &argoInstallation{installer: byManifests, redis: redisService, redisSecret: redisService, redisKey: "auth"}
	found := *usual
	if err := c.readArgo(ctx, &found); err != nil {
		usual.unknown = true
		return usual, err
	}
	return &found, nil
}

func (c *cluster) readArgo(ctx context.Context, a *argoInstallation) (err error) {
	if a.server, err = c.argoWorkload(ctx, "argocd-server", serverComponent); err != nil {
		return err
	}
	if a.controller, err = c.argoWorkload(ctx, "argocd-application-controller", controllerComponent); err != nil {
		return err
	}
	if known := cmp.Or(a.server, a.controller); known != nil {
		switch {
		case known.owner != "":
			a.installer, a.instance = byOperator, known.owner
			a.redisSecret, a.redisKey = known.owner+"-redis-initial-password", "admin.password"
		case strings.HasPrefix(known.labels["helm.sh/chart"], "argo-cd-"):
			a.installer, a.instance = byHelm, known.labels["app.kubernetes.io/instance"]
		}
	}
	services, err := c.kube.CoreV1().Services(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return c.explain(err)
	}
	for i := range services.Items {
		service := &services.Items[i]
		switch labels := service.Labels; {
		case strings.HasSuffix(service.Name, "redis-ha-haproxy"):
			a.redis, a.ha = service.Name, true
		case !a.ha && labels[partOfLabel] == argoPartOf && labels[componentLabel] == "redis" && strings.HasSuffix(service.Name, "-redis"):
			a.redis = service.Name
		}
	}
	return nil
}

// applicationSets returns the Deployment of the ApplicationSet controller, or nil. That of argocd-operator has labels of its
// own.
func (c *cluster) applicationSets(ctx context.Context, a *argoInstallation) (*argoWorkload, error) {
	prefix := argoPartOf
	if a.installer == byOperator {
		prefix = a.instance
	}
	return c.argoWorkload(ctx, prefix+"-"+setsComponent, setsComponent)
}

// argoWorkload returns the Deployment or StatefulSet with a name or, if there is none, of a component. It returns nil if
// Argo CD has none.
func (c *cluster) argoWorkload(ctx context.Context, name, component string) (*argoWorkload, error) {
	d, err := c.kube.AppsV1().Deployments(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return newArgoWorkload(&d.ObjectMeta, &d.Spec.Template.Spec), nil
	} else if !notFound(err) {
		return nil, c.explain(err)
	}
	set, err := c.kube.AppsV1().StatefulSets(c.namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return newArgoWorkload(&set.ObjectMeta, &set.Spec.Template.Spec), nil
	} else if !notFound(err) {
		return nil, c.explain(err)
	}
	selector := metav1.ListOptions{LabelSelector: partOfLabel + "=" + argoPartOf + "," + componentLabel + "=" + component}
	deployments, err := c.kube.AppsV1().Deployments(c.namespace).List(ctx, selector)
	if err != nil {
		return nil, c.explain(err)
	}
	if len(deployments.Items) > 0 {
		return newArgoWorkload(&deployments.Items[0].ObjectMeta, &deployments.Items[0].Spec.Template.Spec), nil
	}
	sets, err := c.kube.AppsV1().StatefulSets(c.namespace).List(ctx, selector)
	if err != nil {
		return nil, c.explain(err)
	}
	if len(sets.Items) > 0 {
		return newArgoWorkload(&sets.Items[0].ObjectMeta, &sets.Items[0].Spec.Template.Spec), nil
	}
	return nil, nil
}

func newArgoWorkload(meta *metav1.ObjectMeta, pod *corev1.PodSpec) *argoWorkload {
	w := &argoWorkload{name: meta.Name, labels: meta.Labels, flags: map[string]string{}}
	for _, owner := range meta.OwnerReferences {
		if owner.Kind == "ArgoCD" && strings.HasPrefix(owner.APIVersion, "argoproj.io/") {
			w.owner = owner.Name
		}
	}
	if len(pod.Containers) > 0 {
		container := &pod.Containers[0]
		read := &settings{flags: w.flags}
		read.readArguments(append(append([]string{}, container.Command...), container.Args...))
		w.image = container.Image
	}
	return w
}

func (a *argoInstallation) String() string {
	text := string(a.installer)
	switch a.installer {
	case byHelm:
		text += ", release " + a.instance
	case byOperator:
		text += ", ArgoCD " + a.instance
	}
	if a.ha {
		text += ", HA"
	}
	return text
}

// setNamespaces returns how to let argocd-server read the namespaces of Applications.
func (a *argoInstallation) setNamespaces(component string) string {
	switch a.installer {
	case byHelm:
		return fmt.Sprintf(`set configs.params."application.namespaces" of the chart argo-cd (release %s) to "*" or to the namespaces of the Applications`, a.instance)
	case byOperator:
		return fmt.Sprintf(`set spec.sourceNamespaces of ArgoCD %s to ["*"] or to the namespaces of the Applications`, a.instance)
	default:
		return fmt.Sprintf(`set application.namespaces in ConfigMap argocd-cmd-params-cm to "*" or to the namespaces of the Applications, and restart %s`, component)
	}
}

// setServerRedis returns how to let argocd-server use the Redis proxy.
func (a *argoInstallation) setServerRedis() string {
	const flag = "--redis argocd-agent-redis-proxy:6379"
	switch a.installer {
	case byHelm:
		return fmt.Sprintf("add %s to server.extraArgs of the chart argo-cd (release %s)", flag, a.instance)
	case byOperator:
		return fmt.Sprintf("add %s to spec.server.extraCommandArgs of ArgoCD %s", flag, a.instance)
	default:
		return "set " + flag + " of argocd-server only"
	}
}

// setPreserved returns how to let the ApplicationSet controller preserve annotations. The flag of the controller and the key
// of the ConfigMap have a list, which is separated by commas.
func (a *argoInstallation) setPreserved(annotations string) string {
	switch a.installer {
	case byHelm:
		return fmt.Sprintf("add --%s=%s to applicationSet.extraArgs of the chart argo-cd (release %s)", preservedFlag, annotations, a.instance)
	case byOperator:
		return fmt.Sprintf("add --%s and %s to spec.applicationSet.extraCommandArgs of ArgoCD %s", preservedFlag, annotations, a.instance)
	default:
		return fmt.Sprintf("add %s to applicationsetcontroller.global.preserved.annotations in ConfigMap argocd-cmd-params-cm, and restart the ApplicationSet controller", annotations)
	}
}

// setRedis returns the values of our chart for the Redis of Argo CD.
func (a *argoInstallation) setRedis() string {
	values := "set redis.address=" + a.redis + ":6379"
	if a.installer == byOperator {
		values += ", redis.secretName=" + a.redisSecret + " and redis.secretKey=" + a.redisKey
	}
	return values + " of the chart"
}

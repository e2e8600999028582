package cli

import (
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/argocd-agent/argocd-agent/internal/hubstate"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// setsController is a Deployment of an ApplicationSet controller, as the manifests of Argo CD have it.
func setsController(name string, labels map[string]string, args ...string) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "argocd", Labels: labels}}
	from := corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "argocd-cmd-params-cm"}, Key: "applicationsetcontroller.global.preserved.annotations"}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Args: args, Env: []corev1.EnvVar{
		{Name: "ARGOCD_APPLICATIONSET_CONTROLLER_GLOBAL_PRESERVED_ANNOTATIONS", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &from}}}}}
	return d
}

func TestDoctor_ApplicationSetsPreserveAnnotations(t *testing.T) {
	const controller = "argocd-applicationset-controller"
	byLabel := map[string]string{"app.kubernetes.io/part-of": "argocd", "app.kubernetes.io/component": "applicationset-controller"}
	all := strings.Join(kind.PreservedAnnotations(), ",")
	for name, c := range map[string]struct {
		alone     bool // without ConfigMap argocd-agent-hub
		install   argoInstallation
		workload  *appsv1.Deployment
		params    string // in argocd-cmd-params-cm
		level     string // empty: nothing is found
		remedy    string
		notRemedy string
	}{
		"a hub without a group":    {alone: true, workload: setsController(controller, nil)},
		"no controller":            {},
		"nothing is set":           {workload: setsController(controller, nil), level: levelWarning, remedy: "add " + all + " to applicationsetcontroller.global.preserved.annotations in ConfigMap argocd-cmd-params-cm"},
		"one is missing":           {workload: setsController(controller, nil), params: "x, " + kind.StandbyAnnotation + ", " + kind.SourceUID, level: levelWarning, remedy: "add " + kind.PrincipalUID + " to", notRemedy: kind.SourceUID},
		"all are set":              {workload: setsController(controller, nil), params: "x," + all, level: levelOK},
		"the flag has all":         {workload: setsController(controller, nil, "--preserved-annotations", all), level: levelOK},
		"the flag is repeated":     {workload: setsController(controller, nil, "--preserved-annotations="+kind.StandbyAnnotation, "--preserved-annotations="+kind.SourceUID+","+kind.PrincipalUID), level: levelOK},
		"the flag replaces the CM": {workload: setsController(controller, nil, "--preserved-annotations=x"), params: all, level: levelWarning, remedy: all},
		"argo-helm": {install: argoInstallation{installer: byHelm, instance: "gitops"}, workload: setsController("gitops-argocd-applicationset-controller", byLabel),
			level: levelWarning, remedy: "add --preserved-annotations=" + all + " to applicationSet.extraArgs of the chart argo-cd (release gitops)"},
		"argocd-operator": {install: argoInstallation{installer: byOperator, instance: "team"}, workload: setsController("team-applicationset-controller", nil),
			level: levelWarning, remedy: "to spec.applicationSet.extraCommandArgs of ArgoCD team"},
	} {
		t.Run(name, func(t *testing.T) {
			clients := fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "argocd-cmd-params-cm", Namespace: "argocd"},
				Data: map[string]string{"applicationsetcontroller.global.preserved.annotations": c.params}})
			create := func(err error) {
				if err != nil {
					t.Fatal(err)
				}
			}
			if !c.alone {
				_, err := clients.CoreV1().ConfigMaps("argocd").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: hubstate.ConfigMap},
					Data: map[string]string{"role": "active"}}, metav1.CreateOptions{})
				create(err)
			}
			if c.workload != nil {
				_, err := clients.AppsV1().Deployments("argocd").Create(t.Context(), c.workload, metav1.CreateOptions{})
				create(err)
			}
			e := &checkRun{}
			e.preserved(t.Context(), &cluster{namespace: "argocd", kube: clients}, &checked{install: &c.install})
			switch {
			case c.level == "" && len(e.found) == 0:
			case len(e.found) != 1 || e.found[0].Level != c.level || !strings.Contains(e.found[0].Remedy, c.remedy) || c.notRemedy != "" && strings.Contains(e.found[0].Remedy, c.notRemedy):
				t.Errorf("%+v", e.found)
			}
		})
	}
}

// The overlay of a hub and the documentation have all annotations that doctor looks for.
func TestPreservedAnnotations_OfOverlayAndDocumentation(t *testing.T) {
	for _, file := range []string{"install/argocd/hub/kustomization.yaml", "docs/hubs.md", "docs/argocd-installations.md"} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, annotation := range kind.PreservedAnnotations() {
			if !strings.Contains(string(text), annotation) {
				t.Errorf("%s lacks %s", file, annotation)
			}
		}
	}
}

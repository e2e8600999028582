package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

// Limits of clock skew.
const (
	skewWarning = 30 * time.Second
	skewProblem = 5 * time.Minute
)

// reach checks the API server, its clock and the namespace. If ok is false, further checks are impossible.
func (e *checkRun) reach(ctx context.Context, c *cluster) (skew time.Duration, ok bool) {
	version, skew, err := c.version(ctx, e.program.Now)
	if err != nil {
		e.problem("api server", "check the context and your credentials", "%v", c.explain(err))
		return 0, false
	}
	e.ok("api server", "%s", version)
	e.clock(skew, "the clocks of the cluster and of this machine")
	if _, err := c.kube.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{}); notFound(err) {
		e.problem("namespace", fmt.Sprintf("create it, or set --%s-namespace", c.flag), "namespace %s not found", c.namespace)
		return skew, false
	}
	return skew, true
}

// clock checks the skew of two clocks.
func (e *checkRun) clock(skew time.Duration, clocks string) {
	const remedy = "synchronize both with NTP"
	switch skew = skew.Abs(); {
	case skew > skewProblem:
		e.problem("clock", remedy, "%s differ by %s, so certificates can look expired or not yet valid", clocks, span(skew))
	case skew > skewWarning:
		e.warning("clock", remedy, "%s differ by %s", clocks, span(skew))
	default:
		e.ok("clock", "%s differ by less than %s", clocks, span(skewWarning))
	}
}

// version returns the version of the API server and the skew of its clock.
func (c *cluster) version(ctx context.Context, now func() time.Time) (string, time.Duration, error) {
	client, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return "", 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.config.Host, "/")+"/version", http.NoBody)
	if err != nil {
		return "", 0, err
	}
	before := now()
	response, err := client.Do(request)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	taken := now().Sub(before)
	var skew time.Duration
	if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
		skew = at.Sub(before.Add(taken / 2))
	}
	info, err := c.kube.Discovery().ServerVersion()
	if err != nil {
		return "", 0, err
	}
	return info.GitVersion, skew, nil
}

// crds checks that the custom resources are served.
func (e *checkRun) crds(c *cluster, ours bool) {
	for _, group := range []struct {
		groupVersion string
		resources    []string
		wanted       bool
		remedy       string
	}{
		{"argoproj.io/v1alpha1", []string{"applications", "appprojects"}, true, "install Argo CD, or its CRDs (manifests/crds of its release)"},
		{v1alpha1.Group + "/" + v1alpha1.Version, []string{v1alpha1.Resource}, ours, "kubectl apply -f install/crds/agents.yaml, or install the chart"},
	} {
		if !group.wanted {
			continue
		}
		list, err := c.kube.Discovery().ServerResourcesForGroupVersion(group.groupVersion)
		if err != nil && !apierrors.IsNotFound(err) {
			e.skipped("crds", c.explain(err))
			continue
		}
		missing := slices.Clone(group.resources)
		if err == nil {
			missing = slices.DeleteFunc(missing, func(name string) bool {
				return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == name })
			})
		}
		if len(missing) > 0 {
			e.problem("crds", group.remedy, "%s of %s not found", strings.Join(missing, ", "), group.groupVersion)
			continue
		}
		e.ok("crds", "%s of %s", strings.Join(group.resources, ", "), group.groupVersion)
	}
}

// installed checks that the Deployment of the principal or the agent is ready.
func (e *checkRun) installed(s *settings) {
	name := s.name
	switch {
	case !s.installed:
		e.note("deployment", "Deployment %s not found. Only the settings in ConfigMap %s are checked.", name, paramsConfigMap)
	case !s.ready:
		e.problem("deployment", fmt.Sprintf("kubectl describe deployment %s; kubectl logs deployment/%s", name, name), "Deployment %s has no ready pod", name)
	default:
		e.ok("deployment", "%s is ready, image %s", name, s.image)
	}
}

package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

// How far a clock may be off.
const (
	skewNoted = 30 * time.Second
	skewBad   = 5 * time.Minute
)

// reach reports whether the API server answers, and what its clock says. Without it nothing else can be looked at.
func (e *checkRun) reach(ctx context.Context, c *cluster) (skew time.Duration, ok bool) {
	version, skew, err := c.version(ctx, e.program.Now)
	if err != nil {
		e.problem("api server", "see that the context is right, and that you are let in", "%v", c.explain(err))
		return 0, false
	}
	e.ok("api server", "%s", version)
	off := skew.Abs()
	switch {
	case off > skewBad:
		e.problem("clock", "set the clocks of this machine and of the cluster's control plane (NTP)", "the cluster's clock and this machine's are %s apart: certificates seem expired or not yet valid", span(off))
	case off > skewNoted:
		e.warning("clock", "see to it that both use NTP", "the cluster's clock and this machine's are %s apart", span(off))
	default:
		e.ok("clock", "within %s of this machine's", span(skewNoted))
	}
	if _, err := c.kube.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{}); notFound(err) {
		e.problem("namespace", fmt.Sprintf("create it, or name Argo CD's with --%s-namespace", c.flag), "there is no namespace %s", c.namespace)
		return skew, false
	}
	return skew, true
}

// version asks an API server for its version, and by its answer for its time.
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

// definitions reports whether the custom resources are there.
func (e *checkRun) definitions(c *cluster, ours bool) {
	for _, group := range []struct {
		groupVersion string
		resources    []string
		wanted       bool
		do           string
	}{
		{"argoproj.io/v1alpha1", []string{"applications", "appprojects"}, true, "install Argo CD, or its definitions (manifests/crds of its release)"},
		{v1alpha1.Group + "/" + v1alpha1.Version, []string{v1alpha1.Resource}, ours, "kubectl apply -f install/crds/agents.yaml, or install the chart"},
	} {
		if !group.wanted {
			continue
		}
		list, err := c.kube.Discovery().ServerResourcesForGroupVersion(group.groupVersion)
		if err != nil && !apierrors.IsNotFound(err) {
			e.unknown("definitions", c.explain(err))
			continue
		}
		present := map[string]bool{}
		if err == nil {
			for _, r := range list.APIResources {
				present[r.Name] = true
			}
		}
		var missing []string
		for _, name := range group.resources {
			if !present[name] {
				missing = append(missing, name)
			}
		}
		if len(missing) > 0 {
			e.problem("definitions", group.do, "the cluster does not know %s of %s", strings.Join(missing, ", "), group.groupVersion)
			continue
		}
		e.ok("definitions", "%s of %s", strings.Join(group.resources, ", "), group.groupVersion)
	}
}

// program reports whether our program is installed and runs.
func (e *checkRun) installed(name string, s *settings) {
	switch {
	case !s.installed:
		e.note("program", "no Deployment %s here: what it is told is not known, and settings are compared as far as ConfigMap %s has them", name, paramsConfigMap)
	case !s.ready:
		e.problem("program", fmt.Sprintf("kubectl describe deployment %s; kubectl logs deployment/%s", name, name), "the Deployment %s has no ready pod", name)
	default:
		e.ok("program", "%s runs, image %s", name, s.image)
	}
}

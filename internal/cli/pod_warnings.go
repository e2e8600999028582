package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/argocd-agent/argocd-agent/internal/observe"
)

// podWarning is what a running program says of its cluster although it is ready: that the API server there takes no writes,
// so that it cannot be read off any object.
type podWarning struct {
	pod  string
	text string
}

// Of a program this many pods are asked, and for so long at most; not as long where something else was asked for,
// and where policies let nobody at pods, nobody shall wait for that.
const (
	mostAsked    = 16
	askTimeout   = 3 * time.Second
	asideTimeout = time.Second
)

// podWarnings asks the pods of a program, by way of the API server, which goes on to read while it takes no writes. An error
// says why not all of them could be asked; asked tells how many were.
func (c *cluster) podWarnings(ctx context.Context, program string, within time.Duration) (found []podWarning, asked int, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	pods, err := c.kube.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + program, Limit: mostAsked})
	if err != nil {
		return nil, 0, c.explain(err)
	}
	answers := make([][]podWarning, len(pods.Items))
	answered := make([]bool, len(pods.Items))
	var work errgroup.Group
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		work.Go(func() error {
			text, err := c.healthOf(ctx, pod)
			if err != nil {
				return fmt.Errorf("ask pod %s: %w", pod.Name, err)
			}
			answered[i] = true
			for line := range strings.Lines(text) {
				if said, ok := strings.CutPrefix(strings.TrimSpace(line), observe.WarningWord+" "); ok {
					_, said, _ = strings.Cut(said, ": ")
					answers[i] = append(answers[i], podWarning{pod.Name, said})
				}
			}
			return nil
		})
	}
	err = work.Wait()
	for i := range answers {
		found = append(found, answers[i]...)
		if answered[i] {
			asked++
		}
	}
	return found, asked, err
}

// healthOf is what a pod's probe says, in all words.
func (c *cluster) healthOf(ctx context.Context, pod *corev1.Pod) (string, error) {
	port := ""
	for _, container := range pod.Spec.Containers {
		for _, one := range container.Ports {
			if one.Name == "healthz" {
				port = strconv.Itoa(int(one.ContainerPort))
			}
		}
	}
	if port == "" {
		return "", fmt.Errorf("it has no port of the name healthz")
	}
	text, err := c.kube.CoreV1().RESTClient().Get().Namespace(c.namespace).Resource("pods").Name(pod.Name+":"+port).
		SubResource("proxy").Suffix("healthz").Param("verbose", "true").MaxRetries(0).DoRaw(ctx)
	switch said := string(text); {
	case strings.Contains(said, " objects"): // its own words, ready or not
		return said, nil
	case said != "" && !strings.Contains(said, `"Status"`):
		return "", fmt.Errorf("what answers there is not the program: %.80q", said)
	case err == nil:
		return "", errors.New("it has nothing to say")
	}
	return "", c.explain(err)
}

// warnWriteOutage says what the principals say of the hub. Who may not ask them is not bothered with that.
func (p *Program) warnWriteOutage(ctx context.Context, hub *cluster) {
	found, _, _ := hub.podWarnings(ctx, principalDeployment, cmp.Or(p.patience, asideTimeout))
	for _, one := range found {
		p.warn("%s says of the hub: %s; what is shown of agents and Applications may be as old as that", one.pod, printable(one.text))
	}
}

// trouble tells what a program says of its cluster.
func (e *checkRun) trouble(ctx context.Context, c *cluster, program string) {
	found, asked, err := c.podWarnings(ctx, program, cmp.Or(e.program.patience, askTimeout))
	for _, one := range found {
		e.problem("writes", "see to the API server: if its etcd is full, compact and defragment it, and disarm the alarm; if it is overloaded, find out by whom. Nothing is lost: all is written when it takes writes again",
			"%s says: %s", one.pod, one.text)
	}
	switch {
	case err != nil:
		e.unknown("writes", err)
	case asked > 0 && len(found) == 0:
		e.ok("writes", "the API server takes what %s writes", program)
	}
}

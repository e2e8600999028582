package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
)

// redisService is the Service of Redis, and the Secret with its password, in the manifests of Argo CD.
const redisService = "argocd-redis"

// serviceOf returns the name of the Service in an address.
func serviceOf(address string) string {
	name, _, _ := strings.Cut(address, ":")
	name, _, _ = strings.Cut(name, ".")
	return name
}

// redis checks that Redis is ready and that a component can connect to it.
func (e *checkRun) redis(ctx context.Context, c *cluster, address string, k *checked, offline bool) {
	set, component := k.settings, k.settings.name
	used := serviceOf(cmp.Or(address, redisService))
	if used != redisService && used != k.install.redis {
		e.note("redis", "%s uses %s, which is not checked", component, address)
		return
	}
	service, err := c.kube.CoreV1().Services(c.namespace).Get(ctx, used, metav1.GetOptions{})
	switch {
	case notFound(err) && used != k.install.redis:
		e.problem("redis", k.install.setRedis(), "Service %s not found. The Redis of this Argo CD (%s) is %s", used, k.install, k.install.redis)
		return
	case notFound(err):
		e.problem("redis", "install Redis of Argo CD, or configure another Redis; resource trees need it", "Service %s not found", used)
		return
	case err != nil:
		e.skipped("redis", c.explain(err))
		return
	}
	found, err := c.kube.DiscoveryV1().EndpointSlices(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + used})
	if err != nil {
		e.skipped("redis", c.explain(err))
		return
	}
	ready := 0
	for _, slice := range found.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				ready++
			}
		}
	}
	if ready == 0 {
		e.problem("redis", "kubectl describe service "+used, "Service %s has no ready endpoint", used)
		return
	}
	policies, err := c.kube.NetworkingV1().NetworkPolicies(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		e.skipped("redis", c.explain(err))
		return
	}
	if by := blockingPolicy(policies.Items, labels.Set(service.Spec.Selector), set.pods); by != "" {
		e.problem("redis", "add an ingress rule for pods with label "+nameLabel+"="+set.pods[nameLabel], "NetworkPolicy %s blocks connections from %s to Redis", by, component)
		return
	}
	e.ok("redis", "Service %s has %s", used, pluralize(ready, "ready endpoint"))
	if !offline {
		e.dialRedis(ctx, c, k, found.Items)
	}
}

// blockingPolicy returns the name of a policy that selects the target, if no policy allows the client.
func blockingPolicy(policies []networkingv1.NetworkPolicy, target, client labels.Set) string {
	by := ""
	for _, policy := range policies {
		if !selects(&policy.Spec.PodSelector, target) || !forIngress(&policy) {
			continue
		}
		for _, rule := range policy.Spec.Ingress {
			if len(rule.From) == 0 {
				return ""
			}
			for _, from := range rule.From {
				if from.IPBlock != nil || from.NamespaceSelector != nil { // cannot be decided by labels, so assume that it allows the client
					return ""
				}
				if selects(from.PodSelector, client) {
					return ""
				}
			}
		}
		by = policy.Name
	}
	return by
}

func forIngress(policy *networkingv1.NetworkPolicy) bool {
	return len(policy.Spec.PolicyTypes) == 0 || slices.Contains(policy.Spec.PolicyTypes, networkingv1.PolicyTypeIngress)
}

func selects(selector *metav1.LabelSelector, set labels.Set) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(set)
}

// dialRedis pings Redis with the password and TLS settings of the component. It uses a port-forward, so that only that
// pod receives the password. NetworkPolicies do not apply to it.
func (e *checkRun) dialRedis(ctx context.Context, c *cluster, k *checked, slices []discoveryv1.EndpointSlice) {
	set := k.settings
	pod, port := podOf(slices, "")
	if pod == "" {
		e.note("redis", "Redis is not a pod of this cluster, so the connection is not checked")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	endpoint, err := c.redisEndpoint(ctx, k)
	if err != nil {
		e.skipped("redis", err)
		return
	}
	err = c.forward(ctx, pod, port, func(address string) error {
		endpoint.Address = address
		return endpoint.Ping(ctx)
	})
	how := "without a password"
	if endpoint.Credentials != nil {
		how = "with the password of Secret " + k.install.redisSecret
	}
	switch text := fmt.Sprint(err); {
	case err == nil:
		e.ok("redis", "pod %s accepts connections %s", pod, how)
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"), strings.Contains(text, "invalid username-password"), strings.Contains(text, "without any password configured"):
		e.problem("redis", "use the same password for Redis and its clients: key "+k.install.redisKey+" of Secret "+k.install.redisSecret+"; pods read it when they start", "pod %s refuses connections %s: %v", pod, how, err)
	case errors.Is(err, errPortForward):
		e.skipped("redis", err)
	case set.on("redis-tls-enabled"):
		e.problem("redis", "if that Redis has no TLS, unset --redis-tls-enabled", "pod %s does not accept TLS connections %s: %v", pod, how, err)
	default:
		e.problem("redis", "check that Redis listens on that port; if it requires TLS, set --redis-tls-enabled; kubectl logs "+pod, "pod %s does not accept connections %s: %v", pod, how, err)
	}
}

// podOf returns a ready pod of a Service and its port, if possible that with the preferred name.
func podOf(slices []discoveryv1.EndpointSlice, preferred string) (pod string, port int32) {
	for _, slice := range slices {
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			if ready && endpoint.TargetRef != nil && endpoint.TargetRef.Kind == "Pod" && len(slice.Ports) > 0 && slice.Ports[0].Port != nil && (pod == "" || endpoint.TargetRef.Name == preferred) {
				pod, port = endpoint.TargetRef.Name, *slice.Ports[0].Port
			}
		}
	}
	return pod, port
}

// redisEndpoint returns TLS and credentials of the Redis connection, without the address.
func (c *cluster) redisEndpoint(ctx context.Context, k *checked) (*redis.Endpoint, error) {
	endpoint := &redis.Endpoint{}
	if k.settings.on("redis-tls-enabled") { // the CA files are in the pod of the component
		endpoint.TLS = func() (*tls.Config, error) {
			return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}, nil //nolint:gosec // the port-forward reaches only that pod
		}
	}
	s, err := kube.Secrets{Client: c.raw, Namespace: c.namespace}.Get(ctx, k.install.redisSecret)
	if err != nil {
		return nil, c.explain(err)
	}
	if key := k.install.redisKey; s != nil && len(s.Data[key]) > 0 {
		endpoint.Credentials = redis.Fixed(string(s.Data["auth_username"]), string(s.Data[key]))
	}
	return endpoint, nil
}

// errPortForward reports that the API server did not forward the port.
var errPortForward = errors.New("port-forward failed")

// forward calls do with a local address that is forwarded to a port of a pod.
func (c *cluster) forward(ctx context.Context, pod string, port int32, do func(address string) error) error {
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return fmt.Errorf("%w: %w", errPortForward, err)
	}
	where := c.kube.CoreV1().RESTClient().Post().Resource(string(corev1.ResourcePods)).Namespace(c.namespace).Name(pod).SubResource("portforward").URL()
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, where),
		[]string{"127.0.0.1"}, []string{"0:" + strconv.Itoa(int(port))}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return fmt.Errorf("%w: %w", errPortForward, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }() // ends when stop is closed
	defer func() {
		close(stop)
		forwarder.Close()
		<-ended
	}()
	select {
	case err := <-ended:
		ended <- err
		return fmt.Errorf("%w: %w", errPortForward, c.explain(err))
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errPortForward, context.Cause(ctx))
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil || len(ports) == 0 {
		return fmt.Errorf("%w: %w", errPortForward, err)
	}
	return do(net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))))
}

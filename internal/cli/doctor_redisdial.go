package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"

	"github.com/argocd-agent/argocd-agent/internal/proxy/redis"
)

// dialRedis pings Redis with the password and TLS settings of the component. It uses a port-forward, so that only that
// pod receives the password. NetworkPolicies do not apply to it.
func (e *checkRun) dialRedis(ctx context.Context, c *cluster, set *settings, slices []discoveryv1.EndpointSlice) {
	pod, port := podOf(slices)
	if pod == "" {
		e.note("redis", "Redis is not a pod of this cluster, so the connection is not checked")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	endpoint, err := c.redisEndpoint(ctx, set)
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
		how = "with the password of Secret " + redisService
	}
	switch text := fmt.Sprint(err); {
	case err == nil:
		e.ok("redis", "pod %s accepts connections %s", pod, how)
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"), strings.Contains(text, "invalid username-password"), strings.Contains(text, "without any password configured"):
		e.problem("redis", "use the same password for Redis and its clients: key auth of Secret "+redisService+"; pods read it when they start", "pod %s refuses connections %s: %v", pod, how, err)
	case errors.Is(err, errPortForward):
		e.skipped("redis", err)
	case set.on("redis-tls-enabled"):
		e.problem("redis", "if that Redis has no TLS, unset --redis-tls-enabled", "pod %s does not accept TLS connections %s: %v", pod, how, err)
	default:
		e.problem("redis", "check that Redis listens on that port; if it requires TLS, set --redis-tls-enabled; kubectl logs "+pod, "pod %s does not accept connections %s: %v", pod, how, err)
	}
}

// podOf returns a ready pod of a Service and its port.
func podOf(slices []discoveryv1.EndpointSlice) (pod string, port int32) {
	for _, slice := range slices {
		for _, endpoint := range slice.Endpoints {
			ready := endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			if ready && endpoint.TargetRef != nil && endpoint.TargetRef.Kind == "Pod" && len(slice.Ports) > 0 && slice.Ports[0].Port != nil {
				return endpoint.TargetRef.Name, *slice.Ports[0].Port
			}
		}
	}
	return "", 0
}

// redisEndpoint returns TLS and credentials of the Redis connection, without the address.
func (c *cluster) redisEndpoint(ctx context.Context, set *settings) (*redis.Endpoint, error) {
	endpoint := &redis.Endpoint{}
	if set.on("redis-tls-enabled") { // the CA files are in the pod of the component
		endpoint.TLS = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // the port-forward reaches only that pod
	}
	s, err := secrets{c}.Get(ctx, redisService)
	if err != nil {
		return nil, err
	}
	if s != nil && len(s.Data["auth"]) > 0 {
		endpoint.Credentials = redis.Fixed(string(s.Data["auth_username"]), string(s.Data["auth"]))
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

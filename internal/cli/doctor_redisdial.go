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

// dialRedis speaks to Redis as our program does: with its password, and TLS where it is told so. The way there is the
// API server's, for the password shall go to that pod and nowhere else; so NetworkPolicies do not count on it.
func (e *checkRun) dialRedis(ctx context.Context, c *cluster, set *settings, slices []discoveryv1.EndpointSlice) {
	pod, port := podOf(slices)
	if pod == "" {
		e.note("redis", "it is no pod of this cluster, and is not tried from here")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, linkTimeout)
	defer cancel()
	endpoint, err := c.redisEndpoint(ctx, set)
	if err != nil {
		e.unknown("redis", err)
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
	switch said := fmt.Sprint(err); {
	case err == nil:
		e.ok("redis", "pod %s answers %s", pod, how)
	case strings.Contains(said, "NOAUTH"), strings.Contains(said, "WRONGPASS"), strings.Contains(said, "invalid username-password"), strings.Contains(said, "without any password configured"):
		e.problem("redis", "give Redis and its clients the same password: key auth of Secret "+redisService+", which pods read when they start", "pod %s refuses a client that comes %s: %v", pod, how, err)
	case errors.Is(err, errNoWay):
		e.unknown("redis", err)
	case set.on("redis-tls-enabled"):
		e.problem("redis", "see whether that Redis has TLS; if not, unset --redis-tls-enabled of the program", "pod %s does not answer %s with TLS: %v", pod, how, err)
	default:
		e.problem("redis", "see whether it is Redis that listens there, and whether it wants TLS: --redis-tls-enabled of the program; kubectl logs "+pod, "pod %s does not answer %s: %v", pod, how, err)
	}
}

// podOf names a pod behind a Service that is ready, and the port there.
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

// redisEndpoint is how our program reaches Redis, but for the address.
func (c *cluster) redisEndpoint(ctx context.Context, set *settings) (*redis.Endpoint, error) {
	endpoint := &redis.Endpoint{}
	if set.on("redis-tls-enabled") { // the files that its certificate is verified with are in the program's pod
		endpoint.TLS = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // the API server leads to that pod alone
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

// errNoWay is that the API server does not lead to a pod.
var errNoWay = errors.New("the API server does not lead there")

// forward lets do connect to a port of a pod, by an address of this machine.
func (c *cluster) forward(ctx context.Context, pod string, port int32, do func(address string) error) error {
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoWay, err)
	}
	where := c.kube.CoreV1().RESTClient().Post().Resource(string(corev1.ResourcePods)).Namespace(c.namespace).Name(pod).SubResource("portforward").URL()
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewOnAddresses(spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, where),
		[]string{"127.0.0.1"}, []string{"0:" + strconv.Itoa(int(port))}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoWay, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }() // until stop is closed, and waited for below
	defer func() {
		close(stop)
		forwarder.Close()
		<-ended
	}()
	select {
	case err := <-ended:
		ended <- err
		return fmt.Errorf("%w: %w", errNoWay, c.explain(err))
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNoWay, context.Cause(ctx))
	case <-ready:
	}
	ports, err := forwarder.GetPorts()
	if err != nil || len(ports) == 0 {
		return fmt.Errorf("%w: %w", errNoWay, err)
	}
	return do(net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))))
}

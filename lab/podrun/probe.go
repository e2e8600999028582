package podrun

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// probe is a probe of the manifest for the local port.
type probe struct {
	check     func(context.Context) error
	delay     time.Duration
	period    time.Duration
	timeout   time.Duration
	failures  int
	successes int
}

// newProbe converts a probe. nil stays nil.
func (o *Options) newProbe(container *corev1.Container, p *corev1.Probe) (*probe, error) {
	if p == nil {
		return nil, nil
	}
	seconds := func(n, standard int32) time.Duration { return time.Duration(cmp.Or(n, standard)) * time.Second }
	q := &probe{
		delay:     seconds(p.InitialDelaySeconds, 0),
		period:    seconds(p.PeriodSeconds, 10),
		timeout:   seconds(p.TimeoutSeconds, 1),
		failures:  int(cmp.Or(p.FailureThreshold, 3)),
		successes: int(cmp.Or(p.SuccessThreshold, 1)),
	}
	switch {
	case p.HTTPGet != nil:
		address, err := o.probeAddress(container, p.HTTPGet.Host, p.HTTPGet.Port)
		if err != nil {
			return nil, err
		}
		q.check = httpCheck(p.HTTPGet, address)
	case p.TCPSocket != nil:
		address, err := o.probeAddress(container, p.TCPSocket.Host, p.TCPSocket.Port)
		if err != nil {
			return nil, err
		}
		q.check = func(ctx context.Context) error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			return conn.Close()
		}
	default:
		return nil, errors.New("only httpGet and tcpSocket probes are supported here")
	}
	return q, nil
}

func (o *Options) probeAddress(container *corev1.Container, host string, port intstr.IntOrString) (string, error) {
	number := port.IntVal
	for _, p := range container.Ports {
		if port.Type == intstr.String && p.Name == port.StrVal {
			number = p.ContainerPort
		}
	}
	local := o.Ports[number]
	if local == 0 {
		return "", fmt.Errorf("a probe asks at port %s, which has no local port: choose a free one in Options.Ports", port.String())
	}
	return net.JoinHostPort(cmp.Or(host, "127.0.0.1"), strconv.Itoa(local)), nil
}

func httpCheck(get *corev1.HTTPGetAction, address string) func(context.Context) error {
	url := strings.ToLower(cmp.Or(string(get.Scheme), "http")) + "://" + address + "/" + strings.TrimPrefix(get.Path, "/")
	client := &http.Client{
		// As a kubelet: no connection reuse, no certificate verification.
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		for _, header := range get.HTTPHeaders {
			req.Header.Add(header.Name, header.Value)
			if strings.EqualFold(header.Name, "Host") {
				req.Host = header.Value
			}
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode < 200 || resp.StatusCode >= 400 {
			return fmt.Errorf("GET %s: %s", url, resp.Status)
		}
		return nil
	}
}

// run probes until ctx ends and reports each change: nil after enough successes in a row, an error after enough
// failures.
func (p *probe) run(ctx context.Context, report func(error)) {
	if !pause(ctx, p.delay) {
		return
	}
	failed, succeeded := 0, 0
	for {
		checkCtx, cancel := context.WithTimeout(ctx, p.timeout)
		err := p.check(checkCtx)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			failed, succeeded = failed+1, 0
		} else {
			failed, succeeded = 0, succeeded+1
		}
		if succeeded == p.successes || failed >= p.failures {
			report(err)
		}
		if !pause(ctx, p.period) {
			return
		}
	}
}

// pause waits and reports whether ctx is not done.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

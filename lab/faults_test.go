package lab_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/faultproxy"
)

// The faults are tested in a separate lab: a hub and a spoke without Argo CD.
func TestFaults(t *testing.T) {
	l := lab.New(t, lab.Options{Bare: true, Spokes: []lab.Spoke{{Name: "spoke", Role: lab.Managed}}})
	t.Run("components are stopped, continued, killed and restarted", func(t *testing.T) { tryComponents(t, l) })
	t.Run("one cluster goes back in time", func(t *testing.T) { tryRestore(t, l) })
	t.Run("etcd has no space left", func(t *testing.T) { tryFullDisk(t, l) })
	t.Run("API servers answer with errors", func(t *testing.T) { tryAPIErrors(t, l) })
	t.Run("an API server is separated from etcd", func(t *testing.T) { tryEtcdLink(t, l) })
}

func mustWrite(t *testing.T, c *lab.Cluster, name string) {
	t.Helper()
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.Client().CoreV1().ConfigMaps("default").Create(t.Context(), note, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func mustDelete(t *testing.T, c *lab.Cluster, name string) {
	t.Helper()
	if err := c.Client().CoreV1().ConfigMaps("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func exists(ctx context.Context, c *lab.Cluster, name string) (bool, error) {
	_, err := c.Client().CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

func state(t *testing.T, l *lab.Lab, component string) lab.Status {
	t.Helper()
	all, err := l.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if one.Name == component {
			return one
		}
	}
	t.Fatalf("no component %s", component)
	return lab.Status{}
}

func tryComponents(t *testing.T, l *lab.Lab) {
	t.Helper()
	ctx, hub := t.Context(), l.Hub()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	answers := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, err := exists(ctx, hub, "any")
		return err
	}

	t.Run("a stopped API server keeps its port and answers nothing", func(t *testing.T) {
		must(l.Stop(ctx, "hub/kube-apiserver"))
		if err := answers(time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it answered: %v", err)
		}
		must(l.Continue(ctx, "hub/kube-apiserver"))
		must(answers(time.Minute))
	})

	t.Run("a killed API server stays dead until restarted", func(t *testing.T) {
		must(l.Kill(ctx, "hub/kube-apiserver"))
		if err := answers(time.Minute); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("its port is not closed: %v", err)
		}
		if got := state(t, l, "hub/kube-apiserver"); got.State != "killed" {
			t.Errorf("state is %s", got.State)
		}
		must(l.Restart(ctx, "hub/kube-apiserver"))
		must(answers(time.Minute))
	})

	t.Run("what crashes comes back by itself", func(t *testing.T) {
		before := state(t, l, "hub/etcd")
		must(syscall.Kill(before.PID, syscall.SIGKILL))
		lab.Await(t, "a new etcd", func(context.Context) error {
			if now := state(t, l, "hub/etcd"); now.PID == before.PID || now.State != "running" {
				return fmt.Errorf("still %+v", now)
			}
			return nil
		})
		lab.Await(t, "the API server on it", func(context.Context) error { return answers(time.Minute) })
	})

	t.Run("the spoke noticed nothing", func(t *testing.T) {
		if got := state(t, l, "spoke/kube-apiserver"); got.Restarts != 0 {
			t.Errorf("got %+v", got)
		}
	})

	t.Run("an unknown component is named, with those there are", func(t *testing.T) {
		err := l.Stop(ctx, "hub/etdc")
		if err == nil || !strings.Contains(err.Error(), `no component "hub/etdc"`) || !strings.Contains(err.Error(), "spoke/etcd") {
			t.Errorf("got %v", err)
		}
	})
}

func tryRestore(t *testing.T, l *lab.Lab) {
	t.Helper()
	hub, spoke := l.Hub(), l.Cluster("spoke")
	mustWrite(t, hub, "before")
	file := filepath.Join(t.TempDir(), "snapshot")
	if err := hub.Snapshot(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, hub, "after")
	mustDelete(t, hub, "before")
	mustWrite(t, spoke, "after")
	if err := hub.Restore(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"before": true, "after": false} {
		if got, err := exists(t.Context(), hub, name); err != nil || got != want {
			t.Errorf("hub: %s is there: %v, %v; want %v", name, got, err, want)
		}
	}
	if got, err := exists(t.Context(), spoke, "after"); err != nil || !got {
		t.Errorf("the spoke was restored too: %v, %v", got, err)
	}
	mustWrite(t, hub, "again") // the restored store accepts writes
}

func tryEtcdLink(t *testing.T, l *lab.Lab) {
	t.Helper()
	hub := l.Hub()
	link, err := hub.LinkEtcd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	mustWrite(t, hub, "through-the-link")
	if err := link.Cut(faultproxy.Blackhole); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	err = hub.Client().CoreV1().ConfigMaps("default").Delete(ctx, "through-the-link", metav1.DeleteOptions{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write without etcd: %v", err)
	}
	if err := link.Restore(); err != nil {
		t.Fatal(err)
	}
	lab.Await(t, "the API server to use etcd again", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		err := hub.Client().CoreV1().ConfigMaps("default").Delete(ctx, "through-the-link", metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

func tryAPIErrors(t *testing.T, l *lab.Lab) {
	t.Helper()
	faulty, err := l.Cluster("spoke").FaultyAPI()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = faulty.Close() })
	config := faulty.Config()
	notes := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("argocd")
	read := func() error {
		_, err := notes.List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := read(); err != nil {
		t.Fatalf("without faults: %v", err)
	}
	for name, test := range map[string]struct {
		do   faultproxy.Action
		want func(error) bool
	}{
		"409": {faultproxy.Conflict(), apierrors.IsConflict},
		"410": {faultproxy.Gone(), apierrors.IsResourceExpired},
		"429": {faultproxy.TooManyRequests(0), apierrors.IsTooManyRequests},
		"500": {faultproxy.InternalError(), apierrors.IsInternalError},
	} {
		t.Run(name, func(t *testing.T) {
			fault := faulty.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"list"}}, Do: test.do})
			if err := read(); !test.want(err) {
				t.Errorf("got %v", err)
			}
			fault.Remove()
			if err := read(); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

func TestLinks_Faults(t *testing.T) {
	l := lab.Get(t)
	link, err := l.Link(l.Cluster("managed").Redis.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	dial := func() net.Conn {
		t.Helper()
		connection, err := net.Dial("tcp", link.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close() })
		return connection
	}
	ping := func(connection net.Conn) error { // any response: Redis requires its password
		if _, err := connection.Write([]byte("PING\r\n")); err != nil {
			return err
		}
		_, err := connection.Read(make([]byte, 64))
		return err
	}
	open := dial()
	if err := ping(open); err != nil {
		t.Fatal(err)
	}
	link.Reset()
	if err := ping(open); err == nil {
		t.Error("a reset connection still works")
	}
	if err := link.Cut(faultproxy.Refuse); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", link.Addr()); err == nil {
		t.Error("a cut link lets connections through")
	}
	if err := link.Restore(); err != nil {
		t.Fatal(err)
	}
	const delay = 300 * time.Millisecond
	link.Delay(delay, 0)
	slow, begun := dial(), time.Now()
	if err := ping(slow); err != nil || time.Since(begun) < delay {
		t.Errorf("the answer came after %s, %v", time.Since(begun), err)
	}
	link.Delay(0, 0)
	link.Throttle(50)
	begun = time.Now()
	if _, err := slow.Write([]byte(strings.Repeat("PING\r\n", 9) + "QUIT\r\n")); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = slow.Read(make([]byte, 64))
	}
	if time.Since(begun) < time.Second { // hundreds of bytes at 50 bytes per second
		t.Errorf("throttled bytes arrived after %s", time.Since(begun))
	}
}

func TestLinks_ArgoCDServerUsesLink(t *testing.T) {
	l := lab.New(t, lab.Options{Spokes: []lab.Spoke{}})
	link, err := l.Link(l.Hub().Redis.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	if err := l.Restart(t.Context(), "hub/argocd-server", lab.Flag("--redis", link.Addr())); err != nil {
		t.Fatal(err)
	}
	lab.Await(t, "argocd-server to use the link", func(context.Context) error {
		if link.Counters().Accepted == 0 {
			return errors.New("no connection yet")
		}
		return nil
	})
	if out, err := l.Command(t.Context(), "argocd", "app", "list").CombinedOutput(); err != nil {
		t.Errorf("argocd app list: %v: %s", err, out)
	}
}

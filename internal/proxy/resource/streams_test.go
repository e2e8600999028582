package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	client "k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
)

// kubelet serves an exec by SPDY as a kubelet does: a command that reads all of its input, then counts it, writes to stderr, and
// ends with a code. The lab's simulated kubelet knows neither the end of input nor codes.
func kubelet(t *testing.T, code int) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV4Name}); err != nil {
			t.Error(err)
			return
		}
		incoming := make(chan httpstream.Stream, 4)
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, _ <-chan struct{}) error {
			incoming <- stream
			return nil
		})
		if conn == nil {
			t.Error("the connection was not upgraded")
			return
		}
		defer conn.Close()
		streams := map[string]httpstream.Stream{}
		for len(streams) < 4 {
			select {
			case stream := <-incoming:
				streams[stream.Headers().Get("streamType")] = stream
			case <-time.After(soon):
				t.Errorf("there are only %d streams", len(streams))
				return
			}
		}
		input, err := io.ReadAll(streams["stdin"])
		if err != nil {
			t.Errorf("read the input: %v", err)
		}
		fmt.Fprintf(streams["stdout"], "%d bytes", len(input))
		fmt.Fprint(streams["stderr"], "an error")
		status := metav1.Status{Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Message: "command terminated",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: remotecommand.ExitCodeCauseType, Message: fmt.Sprint(code)}}}}
		if text, err := json.Marshal(status); err == nil {
			_, _ = streams["error"].Write(text)
		}
		for _, name := range []string{"stdout", "stderr", "error"} {
			_ = streams[name].Close()
		}
		select {
		case <-conn.CloseChan():
		case <-time.After(soon):
			t.Error("the connection stays open")
		}
	}
}

func TestProxy_SPDYEndOfInputAndExitCode(t *testing.T) {
	s := newStage(t, fakeServer(t, kubelet(t, 42)), options{})
	cert, key := keyPair(t, s.ca.issue(t, "w1"))
	config := &rest.Config{Host: "https://" + s.address, TLSClientConfig: rest.TLSClientConfig{CAData: s.ca.pem(), CertData: cert, KeyData: key}}
	address := &url.URL{Scheme: "https", Host: s.address, Path: "/api/v1/namespaces/a/pods/p/exec", RawQuery: "command=wc&stdin=true&stdout=true&stderr=true"}
	executor, err := client.NewSPDYExecutor(config, http.MethodPost, address)
	if err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	err = executor.StreamWithContext(t.Context(), client.StreamOptions{Stdin: strings.NewReader(strings.Repeat("x", 1<<20)), Stdout: &out, Stderr: &stderr})
	exit, ok := errors.AsType[exec.CodeExitError](err)
	if !ok || exit.Code != 42 {
		t.Errorf("it ended with %v", err)
	}
	if out.String() != "1048576 bytes" || stderr.String() != "an error" {
		t.Errorf("stdout is %q, stderr %q", out.String(), stderr.String())
	}
}

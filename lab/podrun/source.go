package podrun

import (
	"context"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// FromClient returns the Source of a real cluster. The client replaces the kubelet: it needs to read Secrets and
// ConfigMaps and to create ServiceAccount tokens.
func FromClient(client kubernetes.Interface) Source { return clientSource{client} }

type clientSource struct{ client kubernetes.Interface }

func (s clientSource) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	return s.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (s clientSource) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return s.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (s clientSource) Token(ctx context.Context, namespace, serviceAccount string, request TokenRequest) (Token, error) {
	spec := authenticationv1.TokenRequestSpec{ExpirationSeconds: &request.Seconds}
	if request.Audience != "" {
		spec.Audiences = []string{request.Audience}
	}
	got, err := s.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount,
		&authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return Token{}, err
	}
	return Token{Value: got.Status.Token, Expires: got.Status.ExpirationTimestamp.Time}, nil
}

// watchAgain is the pause before an ended watch is opened again.
const watchAgain = time.Second

// Watch implements Watcher.
func (s clientSource) Watch(ctx context.Context, namespace string, notify func()) {
	var wg sync.WaitGroup
	for _, open := range []func(context.Context, metav1.ListOptions) (watch.Interface, error){
		s.client.CoreV1().Secrets(namespace).Watch,
		s.client.CoreV1().ConfigMaps(namespace).Watch,
	} {
		wg.Go(func() {
			for ctx.Err() == nil {
				// Without a resourceVersion the watch starts with the current objects, so that no change is missed.
				if w, err := open(ctx, metav1.ListOptions{}); err == nil {
					forward(ctx, w, notify)
				}
				select {
				case <-time.After(watchAgain):
				case <-ctx.Done():
				}
			}
		})
	}
	wg.Wait()
}

func forward(ctx context.Context, w watch.Interface, notify func()) {
	defer w.Stop()
	for {
		select {
		case event, open := <-w.ResultChan():
			if !open || event.Type == watch.Error {
				return
			}
			notify()
		case <-ctx.Done():
			return
		}
	}
}

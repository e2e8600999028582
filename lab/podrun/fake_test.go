package podrun

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// fake is a cluster with Secrets, ConfigMaps and tokens in one namespace.
type fake struct {
	mu         sync.Mutex
	secrets    map[string]map[string]string
	configMaps map[string]map[string]string
	issued     int
	lifetime   time.Duration
	notify     func()
}

func newFake() *fake {
	return &fake{secrets: map[string]map[string]string{}, configMaps: map[string]map[string]string{}, lifetime: time.Hour}
}

func (f *fake) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.secrets[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	secret := &corev1.Secret{Data: map[string][]byte{}}
	for key, value := range data {
		secret.Data[key] = []byte(value)
	}
	return secret, nil
}

func (f *fake) ConfigMap(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.configMaps[name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &corev1.ConfigMap{Data: data}, nil
}

func (f *fake) Token(_ context.Context, namespace, account string, request TokenRequest) (Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.issued++
	return Token{
		Value:   fmt.Sprintf("%s/%s/%s/%d/%d", namespace, account, request.Audience, request.Seconds, f.issued),
		Expires: time.Now().Add(f.lifetime),
	}, nil
}

// setSecret changes a Secret and notifies the watcher, if there is one.
func (f *fake) setSecret(name string, data map[string]string) {
	f.mu.Lock()
	f.secrets[name] = data
	notify := f.notify
	f.mu.Unlock()
	if notify != nil {
		notify()
	}
}

// watchingFake is a fake that can watch.
type watchingFake struct{ *fake }

func (w watchingFake) Watch(ctx context.Context, _ string, notify func()) {
	w.mu.Lock()
	w.notify = notify
	w.mu.Unlock()
	notify() // earlier changes are not missed
	<-ctx.Done()
}

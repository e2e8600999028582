package podrun

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// tokens has the tokens of the ServiceAccount. It renews each when a fifth of its lifetime is left, as a kubelet does.
type tokens struct {
	o    *Options
	mu   sync.Mutex
	kept map[TokenRequest]keptToken
}

type keptToken struct {
	value string
	renew time.Time
}

func newTokens(o *Options) *tokens { return &tokens{o: o, kept: map[TokenRequest]keptToken{}} }

func (t *tokens) get(ctx context.Context, request TokenRequest) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	if kept, ok := t.kept[request]; ok && now.Before(kept.renew) {
		return kept.value, nil
	}
	account := t.o.Template.Spec.ServiceAccountName
	token, err := t.o.Source.Token(ctx, t.o.Namespace, account, request)
	if err != nil {
		return "", fmt.Errorf("request a token of ServiceAccount %s/%s: %w", t.o.Namespace, account, err)
	}
	t.kept[request] = keptToken{token.Value, now.Add(token.Expires.Sub(now) * 4 / 5)}
	return token.Value, nil
}

// next returns when the first token must be renewed, at least one second from now.
func (t *tokens) next() (time.Duration, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first time.Time
	for _, kept := range t.kept {
		if first.IsZero() || kept.renew.Before(first) {
			first = kept.renew
		}
	}
	return max(time.Until(first), time.Second), !first.IsZero()
}

// writeKubeconfig writes the in-cluster configuration of the pod as a kubeconfig. It names the token file, so that
// renewed tokens are used.
func writeKubeconfig(o *Options, account string) (string, error) {
	const name = "in-cluster"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: o.Server.URL, CertificateAuthorityData: o.Server.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{TokenFile: filepath.Join(account, "token")}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: o.Namespace}
	config.CurrentContext = name
	path := filepath.Join(o.Dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("write the pod's kubeconfig: %w", err)
	}
	return path, nil
}

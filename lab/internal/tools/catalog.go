// Package tools builds the binaries of the lab and stores them in the user's cache directory.
//
// Every binary is pinned by a nested module under lab/tools, because the Kubernetes versions of the tools and the
// product differ. A built binary has its own directory, named after its version and a hash of its inputs. A fresh clone
// finds it, and a changed version never uses an old binary.
package tools

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// Tool describes the build of one binary.
type Tool struct {
	Name    string   // file name of the binary
	Dir     string   // its nested module below lab/tools
	Module  string   // the module with the version of the binary
	Package string   // main package
	Stamp   []string // linker symbols for the version
	Files   []string // globs of files in the module that are installed with the binary, such as CRDs
}

// All lists the tools in the order of their build: the tools of the clusters first.
func All() []Tool {
	const kube = "k8s.io/kubernetes"
	kubernetes := func(name string) Tool {
		return Tool{
			Name: name, Dir: "kubernetes", Module: kube, Package: kube + "/cmd/" + name,
			Stamp: []string{"k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion"},
		}
	}
	etcd := func(name, module string) Tool {
		return Tool{Name: name, Dir: "etcd", Module: module, Package: module}
	}
	return []Tool{
		etcd("etcd", "go.etcd.io/etcd/server/v3"),
		etcd("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
		etcd("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
		kubernetes("kube-apiserver"),
		kubernetes("kube-controller-manager"),
		kubernetes("kube-scheduler"),
		kubernetes("kubectl"),
		{
			Name: "kwok", Dir: "kwok", Module: "sigs.k8s.io/kwok", Package: "sigs.k8s.io/kwok/cmd/kwok",
			Files: []string{
				"kustomize/stage/pod/fast/pod-*.yaml",
				"kustomize/stage/node/fast/node-*.yaml",
				"kustomize/stage/node/heartbeat-with-lease/node-*.yaml",
			},
		},
		{
			Name: "argocd", Dir: "argocd",
			Module: "github.com/argoproj/argo-cd/v3", Package: "github.com/argoproj/argo-cd/v3/cmd",
			Stamp: []string{"github.com/argoproj/argo-cd/v3/common.version"},
			Files: []string{"manifests/crds/*-crd.yaml", "manifests/base/config/argocd-*.yaml", "hack/*-wrapper.sh"},
		},
		{
			Name: "kustomize", Dir: "kustomize",
			Module: "sigs.k8s.io/kustomize/kustomize/v5", Package: "sigs.k8s.io/kustomize/kustomize/v5",
		},
		{Name: "helm", Dir: "helm", Module: "helm.sh/helm/v3", Package: "helm.sh/helm/v3/cmd/helm"},
	}
}

// version returns the pinned version of the tool from its nested module.
func (t Tool) version(checkout string) (string, error) {
	file := filepath.Join(t.source(checkout), "go.mod")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the pin of %s: %w", t.Name, err)
	}
	pin := regexp.MustCompile(`(?m)^(?:require)?\s+` + regexp.QuoteMeta(t.Module) + ` (v\S+)`).FindSubmatch(text)
	if pin == nil {
		return "", fmt.Errorf("read the pin of %s: %s does not require %s", t.Name, file, t.Module)
	}
	return string(pin[1]), nil
}

// key returns a hash of the inputs of the build: module graph, options and machine.
func (t Tool) key(checkout string) (string, error) {
	sums, err := os.ReadFile(filepath.Join(t.source(checkout), "go.sum"))
	if err != nil {
		return "", fmt.Errorf("read the checksums of %s: %w", t.Name, err)
	}
	hash := sha256.New()
	hash.Write(sums)
	fmt.Fprintf(hash, "%+v %s/%s", t, runtime.GOOS, runtime.GOARCH)
	return hex.EncodeToString(hash.Sum(nil))[:10], nil
}

// place returns the directory of the built or given binary.
func (t Tool) place(checkout, cache string) (folder, version string, err error) {
	if folder, err = t.given(); folder != "" || err != nil {
		return folder, "as given", err
	}
	if version, err = t.version(checkout); err != nil {
		return "", "", err
	}
	key, err := t.key(checkout)
	if err != nil {
		return "", "", err
	}
	return filepath.Join(cache, strings.Join([]string{t.Name, version, key}, "-")), version, nil
}

func (t Tool) source(checkout string) string {
	return filepath.Join(checkout, "lab", "tools", t.Dir)
}

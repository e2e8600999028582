package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// screenshots writes pictures of Argo CD's web UI into a directory.
func (d *demo) screenshots(ctx context.Context, folder string) error {
	if web, err := d.hasWebUI(ctx); err != nil || !web {
		return errors.Join(err, errors.New("take screenshots: this build of Argo CD has no web UI: use make screenshots ARGOCD=<directory>"))
	}
	front, err := d.loggedIn()
	if err != nil {
		return err
	}
	defer front.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel() // ends Chromium, and with it the streams of the pages
	browser, err := openTab(ctx, d.folder)
	if err != nil {
		return fmt.Errorf("start Chromium: %w", err)
	}
	if err := d.deployMore(ctx); err != nil {
		return err
	}
	pods, err := d.lab.Cluster("managed").Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("find the pod of guestbook: %w", err)
	}
	if len(pods.Items) == 0 {
		return errors.New("find the pod of guestbook: there is none")
	}
	if err := d.waitForClusterVersions(ctx); err != nil {
		return err
	}
	pod := pods.Items[0].Name
	for _, page := range []struct {
		file, path string
		texts      []string
	}{
		{"argocd-applications.png", "/applications?view=list", []string{"guestbook", "orders", "payments", "Healthy", "autonomous"}},
		{"argocd-tree.png", "/applications/managed/guestbook?view=tree", []string{pod}},
		{"argocd-logs.png", "/applications/managed/guestbook?view=tree&tab=logs&node=" + url.QueryEscape("/Pod/default/"+pod+"/0"), []string{pod, "tick"}},
		{"argocd-clusters.png", "/settings/clusters", []string{"managed", "autonomous", "Successful"}},
	} {
		picture, err := browser.screenshot(ctx, front.URL+page.path, page.texts)
		if err != nil {
			return fmt.Errorf("take a screenshot of %s: %w", page.path, err)
		}
		if err := os.WriteFile(filepath.Join(folder, page.file), picture, 0o644); err != nil {
			return err
		}
		d.say("%s, %d kB", filepath.Join(folder, page.file), len(picture)/1000)
	}
	return nil
}

// deployMore adds Applications to those of the demo.
func (d *demo) deployMore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for _, name := range []string{"orders", "payments"} {
		if err := d.createApplications(ctx, name, name); err != nil {
			return err
		}
		for _, spoke := range spokes {
			if err := d.healthy(ctx, spoke.Name, name); err != nil {
				return err
			}
		}
	}
	return nil
}

var kubernetesVersion = regexp.MustCompile(`\sv?1\.[0-9]+`)

// waitForClusterVersions waits until Argo CD shows the Kubernetes version of all clusters.
func (d *demo) waitForClusterVersions(ctx context.Context) error {
	for {
		clusters, err := d.output(ctx, "argocd", "cluster", "list")
		if err != nil || len(kubernetesVersion.FindAllString(clusters, -1)) == len(spokes)+1 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the versions of the clusters are missing: %w\n%s", context.Cause(ctx), clusters)
		case <-time.After(2 * time.Second):
		}
	}
}

// loggedIn starts a proxy in front of argocd-server. Its clients are logged in and need no CA.
func (d *demo) loggedIn() (*httptest.Server, error) {
	pem, err := os.ReadFile(d.lab.ArgoCD.CAFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	target := &url.URL{Scheme: "https", Host: d.lab.ArgoCD.Address}
	return httptest.NewServer(&httputil.ReverseProxy{
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}},
		FlushInterval: -1, // event streams
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+d.lab.ArgoCD.Token)
		},
	}), nil
}

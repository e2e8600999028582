package supervisor

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"github.com/argocd-agent/argocd-agent/lab/gitserver"
	"github.com/argocd-agent/argocd-agent/lab/internal/cluster"
	"github.com/argocd-agent/argocd-agent/lab/internal/model"
	"github.com/argocd-agent/argocd-agent/lab/internal/pki"
	"github.com/argocd-agent/argocd-agent/lab/internal/ports"
	"github.com/argocd-agent/argocd-agent/lab/internal/proc"
)

// startGit starts the Git server as a component, so that it can be stopped and killed.
func (s *supervisor) startGit(ctx context.Context) (model.Git, error) {
	folder := filepath.Join(s.spec.Folder, "git")
	git := model.Git{Store: filepath.Join(folder, "store"), Username: "lab", Password: rand.Text()}
	port, err := s.ports.Next()
	if err != nil {
		return git, err
	}
	authority, err := pki.NewAuthority(filepath.Join(folder, "pki"), "lab git server")
	if err != nil {
		return git, err
	}
	pair, err := authority.Server("git")
	if err != nil {
		return git, err
	}
	git.CAFile, git.URL = authority.CertFile(), "https://"+ports.Address(port)
	store, err := gitserver.OpenStore(git.Store)
	if err != nil {
		return git, err
	}
	if err := store.SetUser(git.Username, git.Password); err != nil {
		return git, err
	}
	program, err := os.Executable()
	if err != nil {
		return git, err
	}
	component, err := s.group.Start(proc.Spec{
		Name: "git", Program: program, Args: []string{"lab", "serve-git", git.Store, ports.Address(port), pair.Cert, pair.Key},
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder, proc.LabVariable(s.spec.Folder)},
		Dir: folder, Log: filepath.Join(model.LogFolder(s.spec.Folder), "git.log"),
	})
	if err != nil {
		return git, err
	}
	return git, component.WaitReady(ctx, cluster.TCPProbe(ports.Address(port)))
}

// ServeGit is the main function of the Git component. It listens after the sample repositories are created.
func ServeGit(ctx context.Context, folder, address, certFile, keyFile string) error {
	certificate, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("load the Git server's certificate: %w", err)
	}
	store, err := gitserver.OpenStore(folder)
	if err != nil {
		return err
	}
	if err := store.CreateSamples(ctx, "https://"+address); err != nil {
		return err
	}
	server, err := gitserver.Serve(store, gitserver.ServerOptions{Certificate: &certificate, Address: address, ErrorLog: os.Stderr})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return server.Close()
}

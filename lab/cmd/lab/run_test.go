package main

import (
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
)

// try runs the command as a user does.
func try(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	var out strings.Builder
	err = run(t.Context(), args, &out, &out)
	return out.String(), err
}

func TestHelp_ListsPublicCommands(t *testing.T) {
	out, err := try(t, "help")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commands() {
		if listed := strings.Contains(out, "\n  "+c.name+" "); listed != (c.help != "") {
			t.Errorf("%s is listed: %v", c.name, listed)
		}
	}
}

func TestRun_UsageErrorsSuggestFix(t *testing.T) {
	folder := t.TempDir() + "/none"
	for want, args := range map[string][]string{
		"unknown command \"upp\"":            {"upp"},
		"takes 1 to 1 arguments":             {"logs", "-lab", folder},
		"start one with `lab up`":            {"status", "-lab", folder},
		"no lab is running there":            {"down", "-lab", folder},
		"use managed or autonomous":          {"up", "-lab", folder, "-spoke", "one=lonely"},
		"flag provided but not defined":      {"up", "-lab", folder, "-nodes", "3"},
		"this command is for the lab itself": {"supervise"},
	} {
		if _, err := try(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("lab %s: got %v, want %q", strings.Join(args, " "), err, want)
		}
	}
}

func TestStatus_ShowsRunningLab(t *testing.T) {
	l := lab.Get(t)
	show := func(args ...string) string {
		t.Helper()
		out, err := try(t, append([]string{args[0], "-lab", l.Dir()}, args[1:]...)...)
		if err != nil {
			t.Fatalf("lab %s: %v", args[0], err)
		}
		return out
	}
	if out := show("status"); !strings.Contains(out, "hub/argocd-server") || !strings.Contains(out, "https://"+l.ArgoCD.Address) {
		t.Errorf("status: %s", out)
	}
	if out := show("logs", "hub/kube-apiserver"); !strings.Contains(out, "Serving securely") {
		t.Errorf("logs: %.300s", out)
	}
	if out := show("kubeconfig", "managed"); strings.TrimSpace(out) != l.Cluster("managed").Kubeconfig {
		t.Errorf("kubeconfig: %s", out)
	}
	if out := show("kubeconfig", "-installed", "hub"); strings.TrimSpace(out) != l.Hub().RunAs.File {
		t.Errorf("kubeconfig -installed: %s", out)
	}
	if out := show("shell", "kubectl", "config", "get-contexts", "-o", "name"); len(strings.Fields(out)) != len(l.Clusters) {
		t.Errorf("shell: %s", out)
	}
	if out := show("shell", "argocd", "account", "get-user-info"); !strings.Contains(out, "Logged In: true") {
		t.Errorf("shell: %s", out)
	}
	for _, args := range [][]string{{"logs", "hub/etdc"}, {"stop", "hub/etdc"}, {"kubeconfig", "hubb"}} {
		_, err := try(t, args[0], "-lab", l.Dir(), args[1])
		if err == nil || !strings.Contains(err.Error(), args[1]) || !strings.Contains(err.Error(), "there are") {
			t.Errorf("lab %v: got %v", args, err)
		}
	}
}

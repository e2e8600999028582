package podrun

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestMain lets the test binary also act as the process of pods.
func TestMain(m *testing.M) {
	switch os.Getenv("PODRUN_CHILD") {
	case "":
		os.Exit(m.Run())
	case "parent":
		parent()
	default:
		child(os.Getenv("PODRUN_CHILD"))
	}
}

// child is a small server that returns its environment.
func child(mode string) {
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	flags := flag.NewFlagSet("child", flag.ContinueOnError)
	port := flags.String("health-port", os.Getenv("HEALTH_PORT"), "")
	flags.String("tls-cert", "", "")
	flags.String("peer", "", "")
	fmt.Println("child", os.Args[1:])
	if err := flags.Parse(os.Args[1:]); err != nil || mode == "crash" {
		os.Exit(3)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health/{name}", func(w http.ResponseWriter, r *http.Request) {
		// Healthy unless a file of that name is in the home directory.
		if _, err := os.Stat(filepath.Join(os.Getenv("HOME"), r.PathValue("name"))); err == nil {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /self", func(w http.ResponseWriter, _ *http.Request) {
		dir, _ := os.Getwd()
		_ = json.NewEncoder(w).Encode(self{Args: os.Args, Env: os.Environ(), Dir: dir, PID: os.Getpid()})
	})
	server := &http.Server{Addr: "127.0.0.1:" + *port, Handler: mux}
	go func() {
		for range terminate {
			fmt.Println("SIGTERM")
			if mode != "stubborn" {
				os.Exit(0)
			}
		}
	}()
	fmt.Println(server.ListenAndServe()) // the port can be in use for a moment: exit and be restarted
	os.Exit(4)
}

// self is the response of a child.
type self struct {
	Args, Env []string
	Dir       string
	PID       int
}

// parent runs a pod, prints the PID of its process and waits.
func parent() {
	container := corev1.Container{Name: "main", Env: []corev1.EnvVar{{Name: "PODRUN_CHILD", Value: "stubborn"}}}
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	pod, err := Start(context.Background(), Options{
		Template:  corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{container}, AutomountServiceAccountToken: new(false)}},
		Namespace: "ns", Dir: os.Args[1], Binary: program, Source: newFake(), Env: map[string]string{"HEALTH_PORT": "0"},
	})
	if err != nil {
		panic(err)
	}
	if err := pod.WaitStarts(context.Background(), 1); err != nil {
		panic(err)
	}
	fmt.Println(pod.Status().PID)
	select {}
}

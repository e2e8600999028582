package lab_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
	"github.com/argocd-agent/argocd-agent/lab/podrun"
)

const deployment = `
apiVersion: v1
kind: Secret
metadata: {name: lab-test-word, namespace: argocd}
stringData: {word: secret-word}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: lab-test, namespace: argocd}
spec:
  replicas: 0
  selector: {matchLabels: {app: lab-test}}
  template:
    metadata: {labels: {app: lab-test}}
    spec:
      serviceAccountName: argocd-agent-agent
      containers:
        - name: main
          image: example
          args:
            - -c
            - cat /etc/words/word; echo; echo "redis at $REDIS"; "$KUBECTL" auth whoami; exec sleep 1000
          env: [{name: REDIS, value: "argocd-redis:6379"}]
          volumeMounts: [{name: words, mountPath: /etc/words}]
      volumes: [{name: words, secret: {secretName: lab-test-word}}]
`

func TestPods_DeploymentCommandRunsAsProcess(t *testing.T) {
	l := lab.Get(t)
	c := l.Cluster("managed")
	if err := c.Apply(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command := l.Command(context.Background(), "kubectl", "--context", c.Name, "delete", "-f", "-")
		command.Stdin = strings.NewReader(deployment)
		_ = command.Run()
	})
	log := t.TempDir() + "/output"
	output, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	pod, err := c.RunDeployment(t.Context(), []byte(deployment), "lab-test", "/bin/sh", func(o *podrun.Options) {
		o.Env["KUBECTL"], o.Output = l.Spec.Tools.Binary("kubectl"), output
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pod.Stop(context.Background()) })
	lab.Await(t, "the pod's words", func(context.Context) error {
		said, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for _, want := range []string{"secret-word", "redis at " + c.Redis.Address, c.RunAs.User} {
			if !strings.Contains(string(said), want) {
				return fmt.Errorf("no %q in %q", want, said)
			}
		}
		return nil
	})
}

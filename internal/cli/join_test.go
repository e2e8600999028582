package cli

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/lab"
)

func TestJoin_Transcript(t *testing.T) {
	const namespace = "cli-joining"
	s, l := inLab(t, namespace)
	s.now = time.Now
	s.names = map[string]string{}
	s.replace[`(?m)^ *\d+\.\ds  `] = "TIME  "
	s.replace[`20\d\d-\d\d-\d\d \d\d:\d\d`] = "DATE"
	s.replace[`OU=[-_A-Za-z0-9]{8}`] = "OU=…"
	s.commands["listen"] = func(string) string {
		s.names["PRINCIPAL"] = fakePrincipal(t, l.Hub(), namespace).Listener.Addr().String()
		return ""
	}
	s.commands["manifest"] = func(argument string) string { return relevantLines(t, s.run(words(argument)...)) }
	s.commands["data"] = func(argument string) string { return dataOf(t, l.Cluster("managed"), namespace, argument) }
	s.play("join.txt")
}

// dataOf reads one entry of a Secret or ConfigMap.
func dataOf(t *testing.T, c *lab.Cluster, namespace, argument string) string {
	t.Helper()
	words := strings.Fields(argument)
	if words[0] == "secret" {
		secret, err := c.Client().CoreV1().Secrets(namespace).Get(t.Context(), words[1], metav1.GetOptions{})
		if err != nil {
			return err.Error() + "\n"
		}
		return string(secret.Data[words[2]]) + "\n"
	}
	config, err := c.Client().CoreV1().ConfigMaps(namespace).Get(t.Context(), words[1], metav1.GetOptions{})
	if err != nil {
		return err.Error() + "\n"
	}
	return config.Data[words[2]] + "\n"
}

// relevantLines returns the lines of manifests that depend on the arguments.
func relevantLines(t *testing.T, manifests string) string {
	t.Helper()
	var out strings.Builder
	for document := range strings.SplitSeq(strings.TrimPrefix(manifests, "---\n"), "\n---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil || object["kind"] == nil {
			t.Fatalf("%v: %s", err, document)
		}
		for line := range strings.Lines(document) {
			for _, word := range []string{"image: ", "REMOTE_", "_MODE", "_LOG_LEVEL", "token: "} {
				if strings.Contains(line, word) {
					out.WriteString(object["kind"].(string) + ": " + strings.TrimSpace(line) + "\n")
				}
			}
		}
	}
	return out.String()
}

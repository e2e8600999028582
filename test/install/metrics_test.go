package install

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// metricsPage returns the metrics reference, generated from the responses of the binaries.
func metricsPage(t testing.TB, principal, agent int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("<!-- Made from what the programs answer: go test ./test/install -run TestInstalled -update -->\n# Metrics\n\n" +
		"Both components serve `/metrics` in the text format of Prometheus. The series of a deleted agent are removed. Both also\nexport the `go_` and `process_` metrics of the Prometheus Go client.\n")
	for _, program := range []struct {
		name  string
		usual int
		port  int
	}{{"Principal", 8000, principal}, {"Agent", 8181, agent}} {
		fmt.Fprintf(&b, "\n## %s, port %d\n\n| metric | type | |\n|---|---|---|\n", program.name, program.usual)
		for _, line := range metrics(t, program.port) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// metrics returns the metrics of a component as rows of a table.
func metrics(t testing.TB, port int) (lines []string) {
	t.Helper()
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", port))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	help := map[string]string{}
	for line := range strings.Lines(string(text)) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		if len(words) < 4 || words[0] != "#" || !strings.HasPrefix(words[2], "argocd_a") { // argocd_agent_ and argocd_app_
			continue
		}
		switch words[1] {
		case "HELP":
			help[words[2]] = words[3]
		case "TYPE":
			lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |\n", words[2], words[3], strings.ReplaceAll(help[words[2]], "|", `\|`)))
		}
	}
	if len(lines) == 0 {
		t.Fatalf("no metrics in %s", text)
	}
	slices.Sort(lines)
	return lines
}

package install

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metricsPage returns the metrics reference, generated from the responses of the binaries.
func metricsPage(t testing.TB, principal, agent int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("<!-- Made from what the programs answer: go test ./test/install -run TestInstalled -update -->\n# Metrics\n\n" +
		"Both components serve `/metrics` in the text format of Prometheus. The series of a deleted agent are removed. Both also\nexport the `go_` and `process_` metrics of the Prometheus Go client.\n" +
		"Metrics `argocd_app_` have the names and labels of Argo CD's application controller. Label `agent` is empty on an agent.\n")
	for _, program := range []struct {
		name  string
		usual int
		port  int
	}{{"Principal", 8000, principal}, {"Agent", 8181, agent}} {
		fmt.Fprintf(&b, "\n## %s, port %d\n\n| metric | type | labels | |\n|---|---|---|---|\n", program.name, program.usual)
		for _, line := range metrics(t, program.port) {
			b.WriteString(line)
		}
	}
	return b.String() + standbyMetrics
}

// standbyMetrics is the part about a standby, which the installation of this test does not have. TestStandby_HasMetrics of
// internal/principal compares it with what a standby answers.
const standbyMetrics = `
## Principal of a standby hub, port 8000

It has these metrics, ` + "`" + `argocd_agent_principal_build_info` + "`" + ` and ` + "`" + `argocd_agent_principal_hub_generation` + "`" + `.

| metric | type | labels | |
|---|---|---|---|
| ` + "`" + `argocd_agent_principal_standby_lag_seconds` + "`" + ` | gauge |  | Seconds since this standby hub was last proven to have all objects of the active hub, or since it began to receive them. Only the principal replica that receives them has it. |
| ` + "`" + `argocd_agent_principal_standby_open_scopes` + "`" + ` | gauge |  | Kinds of objects of which this standby hub is not proven to have all of the active hub. |
`

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
	return metricRows(t, string(text))
}

// metricRows returns one row per metric of the text format.
func metricRows(t testing.TB, text string) (lines []string) {
	t.Helper()
	help, kind := map[string]string{}, map[string]string{}
	labels := map[string]map[string]bool{}
	current := ""
	for line := range strings.Lines(text) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		switch {
		case len(words) == 4 && words[0] == "#" && words[1] == "HELP":
			help[words[2]] = words[3]
		case len(words) == 4 && words[0] == "#" && words[1] == "TYPE":
			current = words[2]
			kind[current], labels[current] = words[3], map[string]bool{}
		default:
			for _, label := range metricLabel.FindAllStringSubmatch(line, -1) {
				if label[1] != "le" || kind[current] != "histogram" {
					labels[current][label[1]] = true
				}
			}
		}
	}
	for name := range kind {
		if !strings.HasPrefix(name, "argocd_a") { // argocd_agent_ and argocd_app_
			continue
		}
		var list []string
		for _, label := range slices.Sorted(maps.Keys(labels[name])) {
			list = append(list, "`"+label+"`")
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind[name], strings.Join(list, ", "), strings.ReplaceAll(help[name], "|", `\|`)))
	}
	if len(lines) == 0 {
		t.Fatalf("no metrics in %s", text)
	}
	slices.Sort(lines)
	return lines
}

var metricLabel = regexp.MustCompile(`([a-z_]+)="(?:[^"\\]|\\.)*"`)

func TestMetricRows_ListLabels(t *testing.T) {
	got := metricRows(t, `# HELP argocd_agent_x Text.
# TYPE argocd_agent_x gauge
argocd_agent_x{agent="",scope="a \"b=\" c"} 1
argocd_agent_x{agent="",role="r"} 1
# HELP argocd_agent_seconds Time | duration.
# TYPE argocd_agent_seconds histogram
argocd_agent_seconds_bucket{le="1"} 0
# HELP go_info Other.
# TYPE go_info gauge
go_info{version="1"} 1
`)
	want := []string{"| `argocd_agent_seconds` | histogram |  | Time \\| duration. |\n", "| `argocd_agent_x` | gauge | `agent`, `role`, `scope` | Text. |\n"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

package monitoring

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

const root = "../.."

var queries = parser.NewParser(parser.Options{})

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(root + "/" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// reference returns the labels of each metric in the metrics reference.
func reference(t testing.TB) map[string][]string {
	t.Helper()
	metrics := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(argocd_\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(read(t, "docs/reference/metrics.md"), -1) {
		labels := strings.FieldsFunc(row[3], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		metrics[row[1]] = labels
		if row[2] == "histogram" {
			metrics[row[1]+"_bucket"] = append(slices.Clone(labels), "le")
			metrics[row[1]+"_sum"], metrics[row[1]+"_count"] = labels, labels
		}
	}
	if len(metrics) < 50 {
		t.Fatalf("only %d metrics in the reference: check this test", len(metrics))
	}
	return metrics
}

// unknown lists the metrics and labels of a query that the reference does not have.
func unknown(metrics map[string][]string, query string) (problems []string) {
	expr, err := queries.ParseExpr(query)
	if err != nil {
		return []string{err.Error()}
	}
	labels := []string{"instance", "job"} // from Prometheus
	var used []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			known, there := metrics[n.Name]
			if standard := strings.HasPrefix(n.Name, "process_") || strings.HasPrefix(n.Name, "go_"); !there && !standard {
				problems = append(problems, "there is no metric "+n.Name)
			}
			labels = append(labels, known...)
			for _, m := range n.LabelMatchers {
				if m.Name != "__name__" && there && !slices.Contains(known, m.Name) {
					problems = append(problems, n.Name+" has no label "+m.Name)
				}
			}
		case *parser.AggregateExpr:
			used = append(used, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				used = append(append(used, n.VectorMatching.MatchingLabels...), n.VectorMatching.Include...)
			}
		}
		return nil
	})
	for _, label := range used {
		if !slices.Contains(labels, label) {
			problems = append(problems, "no metric has label "+label)
		}
	}
	return problems
}

func TestUnknown_FindsWrongQueries(t *testing.T) {
	metrics := map[string][]string{"up_total": {"agent"}, "seconds_bucket": {"le"}}
	for query, want := range map[string]string{
		"sum by (agent) (rate(up_total[5m]))": "",
		"histogram_quantile(0.9, sum by (le) (rate(seconds_bucket[5m]))) and on (instance) process_x": "",
		"sum by (agent) (up_total":               "unclosed left parenthesis",
		"down_total":                             "there is no metric down_total",
		`up_total{agnet="a"}`:                    "up_total has no label agnet",
		"sum by (le) (up_total)":                 "no metric has label le",
		"up_total and on (agent, le) up_total":   "no metric has label le",
		"rate(up_total)":                         "expected type range vector",
		"up_total * on (agent) group_left (x) y": "there is no metric y",
	} {
		if got := strings.Join(unknown(metrics, query), "; "); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

package monitoring

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

const dashboards = "install/helm/argocd-agent/files/dashboards"

// variables replaces what Grafana replaces before it sends a query.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$agent", "w1")

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ Expr string }
}

func TestDashboards_QueriesAreValid(t *testing.T) {
	metrics := reference(t)
	files, err := os.ReadDir(root + "/" + dashboards)
	if err != nil || len(files) != 2 {
		t.Fatalf("%d dashboards: %v", len(files), err)
	}
	uids := map[string]bool{}
	for _, file := range files {
		var board struct {
			UID, Title string
			Panels     []panel
			Templating struct{ List []struct{ Name string } }
		}
		text := read(t, dashboards+"/"+file.Name())
		if err := json.Unmarshal([]byte(text), &board); err != nil {
			t.Fatalf("%s: %v", file.Name(), err)
		}
		if board.UID == "" || uids[board.UID] || board.Title == "" {
			t.Errorf("%s: uid %q, title %q", file.Name(), board.UID, board.Title)
		}
		uids[board.UID] = true
		for _, v := range board.Templating.List {
			if !strings.Contains(text, "$"+v.Name) && !strings.Contains(text, "${"+v.Name+"}") {
				t.Errorf("%s: no query uses variable %s", file.Name(), v.Name)
			}
		}
		queries := 0
		for i, p := range board.Panels {
			for _, target := range p.Targets {
				queries++
				for _, problem := range unknown(metrics, variables.Replace(target.Expr)) {
					t.Errorf("%s, %s: %s: %s", file.Name(), p.Title, target.Expr, problem)
				}
			}
			if p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("%s: %s shows nothing", file.Name(), p.Title)
			}
			for _, q := range board.Panels[:i] {
				if p.ID == q.ID || overlap(p, q) {
					t.Errorf("%s: %s and %s have the same ID or place", file.Name(), p.Title, q.Title)
				}
			}
		}
		if queries < 15 {
			t.Errorf("%s: only %d queries: check this test", file.Name(), queries)
		}
	}
}

func overlap(p, q panel) bool {
	a, b := p.GridPos, q.GridPos
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

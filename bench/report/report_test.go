package report

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestReport_ShowsMedianAndSpread(t *testing.T) {
	r := &Report{Title: "t"}
	for _, v := range []float64{9, 1, 4} {
		r.AtMost(5, "latency", v, "ms")
		r.Add("rate", 10*v, "/s")
	}
	r.AtLeast(2, "once", 1, "")
	if f := r.Figures[0]; len(r.Figures) != 3 || f.Value != 4 || f.Missed() || !slices.Equal(f.Values, []float64{9, 1, 4}) {
		t.Errorf("%+v", r.Figures)
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string][]string{"latency": {"4 ms", "1 to 9", "≤ 5 ms", "ok"}, "rate": {"40 /s", "10 to 90"}, "once": {"≥ 2", "MISSED"}} {
		line := ""
		for l := range strings.Lines(out.String()) {
			if strings.HasSuffix(strings.TrimSpace(l), what) {
				line = l
			}
		}
		for _, w := range want {
			if !strings.Contains(line, w) {
				t.Errorf("there is no %q in %q", w, line)
			}
		}
	}
}

func TestReport_KeepsFiguresBeforeFailure(t *testing.T) {
	r := &Report{Title: "t"}
	r.Add("first", 1, "s")
	file := filepath.Join(t.TempDir(), "x", "report.json")
	broken := errors.New("the second part broke")
	if err := r.End(file, broken); !errors.Is(err, broken) {
		t.Errorf("finished with %v", err)
	}
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var saved Report
	if err := json.Unmarshal(body, &saved); err != nil || len(saved.Figures) != 1 || saved.Failed != broken.Error() {
		t.Errorf("saved %s, %v", body, err)
	}
}

func TestReport_MedianAndPercentiles(t *testing.T) {
	for _, c := range []struct {
		values []float64
		median float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{3, 1}, 2}, {[]float64{5, 1, 3}, 3}} {
		if got := Median(c.values); got != c.median {
			t.Errorf("median of %v: %v", c.values, got)
		}
	}
	var hundred []int
	for i := range 100 {
		hundred = append(hundred, i+1)
	}
	for p, want := range map[float64]int{0: 1, 1: 1, 50: 50, 99: 99, 99.5: 100, 100: 100} {
		if got := Percentile(hundred, p); got != want {
			t.Errorf("percentile %v of 1 to 100: %d", p, got)
		}
	}
	if got := Percentile([]int{7}, 99); got != 7 {
		t.Errorf("of one value: %d", got)
	}
	if got := Percentile([]int(nil), 99); got != 0 {
		t.Errorf("of none: %d", got)
	}
}

package sim

import (
	"testing"
)

// seedsInTests is how many seeds every run of the tests tries. make sim tries
// as many as you like.
const seedsInTests = 200

func TestWorldsComeToRestWithoutViolations(t *testing.T) {
	seeds := uint64(seedsInTests)
	if testing.Short() {
		seeds /= 2
	}
	report := Many(1, seeds, 1, nil)
	if report.Failed() {
		t.Fatalf("\n%s", report)
	}
	t.Logf("%d steps, %d checks", report.Steps, report.Checks)
}

func TestSameSeedSameTranscript(t *testing.T) {
	for seed := uint64(1); seed <= 12; seed++ {
		var runs [2][]string
		for i := range runs {
			Run(Seed{Number: seed}, func(line string) { runs[i] = append(runs[i], line) })
		}
		if len(runs[0]) != len(runs[1]) {
			t.Errorf("seed %d: transcripts of %d and %d lines", seed, len(runs[0]), len(runs[1]))
		}
		for i := range min(len(runs[0]), len(runs[1])) {
			if runs[0][i] != runs[1][i] {
				t.Fatalf("seed %d, line %d:\n%s\n%s", seed, i, runs[0][i], runs[1][i])
			}
		}
	}
}

func TestTranscriptDoesNotChangeWhatHappens(t *testing.T) {
	for seed := uint64(1); seed <= 12; seed++ {
		silent := Run(Seed{Number: seed}, nil)
		traced := Run(Seed{Number: seed}, func(string) {})
		if silent.Steps != traced.Steps || silent.Bytes != traced.Bytes {
			t.Errorf("seed %d: %d steps and %d bytes, traced %d and %d", seed, silent.Steps, silent.Bytes, traced.Steps, traced.Bytes)
		}
	}
}

func TestSeedIsReadAsItIsWritten(t *testing.T) {
	for _, text := range []string{"7", "7:", "7:1,2,30"} {
		s, err := ParseSeed(text)
		if err != nil || s.String() != text {
			t.Errorf("%s is read as %s, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "x", "1:x"} {
		if s, err := ParseSeed(text); err == nil {
			t.Errorf("%q is read as %s", text, s)
		}
	}
}

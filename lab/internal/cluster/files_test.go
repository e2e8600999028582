package cluster

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestMountedFiles_FollowConfigMap(t *testing.T) {
	folder := t.TempDir()
	for _, data := range []map[string]string{
		{"one": "1", "two": "2"},
		{"two": "changed", "three": "3"},
		{},
	} {
		if err := writeMount(folder, data); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(folder)
		if err != nil || len(files) != len(data) {
			t.Fatalf("%v: files %v, %v", data, files, err)
		}
		for name, want := range data {
			if got, _ := os.ReadFile(filepath.Join(folder, name)); string(got) != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
	}
}

func TestStages_CompletingStageSkipsLongRunningPods(t *testing.T) {
	for name, want := range map[string]bool{"pod-complete": true, "pod-ready": false} {
		file := filepath.Join(t.TempDir(), "stage.yaml")
		stage := "kind: Stage\nmetadata: {name: " + name + "}\nspec: {selector: {matchExpressions: [{key: .status.phase}]}}\n"
		if err := os.WriteFile(file, []byte(stage), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readStage(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(got), LongRunning) != want {
			t.Errorf("%s became %s", name, got)
		}
	}
}

func TestPodLogs_HaveContainerRuntimeFormat(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	if err := AppendPodLog(file, "two words"); err != nil {
		t.Fatal(err)
	}
	got, _ := os.ReadFile(file)
	if !regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z stdout F two words\n$`).Match(got) {
		t.Errorf("got %q", got)
	}
}

func TestManifests_AreSplitIntoObjects(t *testing.T) {
	objects, err := decode([]byte("# only a comment\n---\nkind: A\n---\n\n---\nkind: B\n"))
	if err != nil || len(objects) != 2 || objects[0].GetKind() != "A" || objects[1].GetKind() != "B" {
		t.Errorf("got %v, %v", objects, err)
	}
	if _, err := serviceAccountIn([]byte("kind: A\n")); err == nil {
		t.Error("a ServiceAccount was found where there is none")
	}
}

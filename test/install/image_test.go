package install

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// largest is the maximum size of a binary in the image.
const largest = 60 << 20

// The test has no container engine. It builds the binaries with the command of the Dockerfile, for every released
// architecture. They must be static to start in an empty image.
func TestImage_BinariesAreStatic(t *testing.T) {
	if testing.Short() {
		t.Skip("building for another architecture takes a minute, which -short leaves out")
	}
	command := buildCommand(t)
	for architecture, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(architecture, func(t *testing.T) {
			out := t.TempDir() + "/"
			line := strings.NewReplacer("$TARGETOS", "linux", "$TARGETARCH", architecture, "/out/", out).Replace(command)
			build := exec.CommandContext(t.Context(), "sh", "-ec", line)
			build.Dir = "../.."
			if text, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", line, err, text)
			}
			programs, err := filepath.Glob(out + "*")
			if err != nil || len(programs) == 0 {
				t.Fatalf("nothing was built: %v", err)
			}
			for _, program := range programs {
				checkStatic(t, program, machine)
			}
		})
	}
}

// buildCommand returns the build command of the Dockerfile.
func buildCommand(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^RUN (CGO_ENABLED=0 .*go build .*)$`).FindStringSubmatch(read(t, "../../Dockerfile"))
	if found == nil {
		t.Fatal("the Dockerfile has no line that builds without cgo")
	}
	return found[1]
}

func checkStatic(t *testing.T, program string, machine elf.Machine) {
	t.Helper()
	name := filepath.Base(program)
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > largest {
		t.Errorf("%s has %d MiB, more than %d", name, info.Size()>>20, largest>>20)
	}
	t.Logf("%s: %.1f MiB", name, float64(info.Size())/(1<<20))
	file, err := elf.Open(program)
	if err != nil {
		t.Fatalf("%s is no Linux program: %v", name, err)
	}
	defer file.Close()
	if file.Machine != machine {
		t.Errorf("%s is for %s, not for %s", name, file.Machine, machine)
	}
	for _, part := range file.Progs {
		if part.Type == elf.PT_INTERP {
			t.Errorf("%s needs an interpreter: it is not static", name)
		}
	}
	if libraries, err := file.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("%s needs libraries %v (%v): it is not static", name, libraries, err)
	}
	if file.Section(".symtab") != nil {
		t.Errorf("%s is not stripped", name)
	}
}

// The image runs with a numeric UID, which runAsNonRoot requires, and contains only the binaries.
func TestImage_RunsAsNonRoot(t *testing.T) {
	text := read(t, "../../Dockerfile")
	for _, want := range []string{"\nFROM scratch\n", "\nUSER 65532:65532\n", "$TARGETARCH", "--platform=$BUILDPLATFORM"} {
		if !strings.Contains(text, want) {
			t.Errorf("the Dockerfile lacks %q", strings.TrimSpace(want))
		}
	}
}

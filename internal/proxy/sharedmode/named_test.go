package sharedmode

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Whatever makes the repo-server look beyond the repository is in the request, and the request is the spoke's.
func TestRules_AgentsCannotChooseWhatIsFetchedReadOrRun(t *testing.T) {
	h := serve(t, RepoConfig{})
	request := [][]byte{field(1, repository(ours)), field(10, words(1, ours)), noKustomize, words(5, "web")}
	helm := func(parts ...[]byte) []byte { return field(10, field(7, parts...)) }
	kustomize := func(parts ...[]byte) []byte { return field(10, field(8, parts...)) }
	const fetched = "a file that is not within the repository"
	for name, c := range map[string]struct {
		want  string
		parts [][]byte
	}{
		"values from an address":         {fetched, [][]byte{helm(words(1, "http://169.254.169.254/latest"))}},
		"more than the first":            {fetched, [][]byte{helm(words(1, "values.yaml"), words(1, "http://evil"))}},
		"of another Application":         {`Application "other" does not have it`, [][]byte{words(5, "other"), helm(words(1, "https://values.example.com/$ARGOCD_APP_NAME.yaml"))}},
		"a list":                         {fetched, [][]byte{helm(words(1, "values.yaml,/proc/self/environ"))}},
		"a quoted list":                  {fetched, [][]byte{helm(words(1, `"values.yaml"`))}},
		"an address that is filled in":   {fetched, [][]byte{helm(words(1, "$ARGOCD_APP_SOURCE_PATH")), field(10, words(2, "http://evil"))}},
		"in two parts":                   {fetched, [][]byte{helm(words(1, "ht$ARGOCD_APP_SOURCE_TARGET_REVISION")), field(10, words(4, "tp://evil"))}},
		"as a name":                      {"is not a name", [][]byte{helm(words(1, "$ARGOCD_APP_NAME")), words(5, "http://evil")}},
		"as a namespace":                 {"is not a name", [][]byte{words(8, "x/../..")}},
		"as a project":                   {"is not a name", [][]byte{words(25, "a,b")}},
		"after the repository":           {fetched, [][]byte{helm(words(1, "${ARGOCD_APP_SOURCE_REPO_URL}@evil"))}},
		"a parameter from an address":    {fetched, [][]byte{helm(field(5, words(1, "a"), words(2, "https://evil")))}},
		"a parameter that is two":        {fetched, [][]byte{helm(field(5, words(1, "a=/proc/self/environ,b"), words(2, "x")))}},
		"a component from an address":    {fetched, [][]byte{kustomize(words(13, "https://evil//x"))}},
		"one without a scheme":           {fetched, [][]byte{kustomize(words(13, "github.com/evil/x"))}},
		"a foreign one":                  {fetched, [][]byte{kustomize(words(13, "git@intranet/x"))}},
		"a patch from an address":        {fetched, [][]byte{kustomize(field(12, words(1, "http://evil")))}},
		"a plugin":                       {"a plugin or its setting", [][]byte{field(10, field(11, words(1, "another")))}},
		"a plugin's environment":         {"a plugin or its setting", [][]byte{field(10, field(11, words(1, "vault"), field(2, words(1, "path"), words(2, "secret/theirs"))))}},
		"a plugin's parameter":           {"a plugin or its setting", [][]byte{field(10, field(11, words(1, "vault"), field(3, words(5, "secret/theirs"))))}},
		"a plugin's list":                {"a plugin or its setting", [][]byte{field(10, field(11, field(3, field(4, words(1, "x")))))}},
		"a plugin's map":                 {"a plugin or its setting", [][]byte{field(10, field(11, field(3, field(3, field(1, words(1, "k"), words(2, "v"))))))}},
		"a program":                      {`a program, "importstr '/proc/self/environ'"`, [][]byte{field(10, field(10, field(2, field(1, words(2, "importstr '/proc/self/environ'"), number(3, 1)))))}},
		"a program as an argument":       {"a program", [][]byte{field(10, field(10, field(2, field(2, words(2, "x"), number(3, 1)))))}},
		"an Application that none knows": {"the hub is not ready", [][]byte{words(5, "broken"), helm(words(1, "http://evil"))}},
	} {
		got, err := h.ask("w1", "GenerateManifest", append(bytes.Clone(bytes.Join(request, nil)), bytes.Join(c.parts, nil)...))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if len(h.asked) > 0 {
		t.Errorf("the repo-server was asked %q", h.asked)
	}
}

// The repo-server looks where links lead when it is asked for manifests, but by default not when it is asked for files.
func TestGitFiles_RejectsSymbolicLinks(t *testing.T) {
	h := serve(t, RepoConfig{})
	own := field(1, repository(ours, words(2, "user")), words(3, "password"))
	ask := func(parts ...[]byte) error {
		h.asked = nil
		_, err := h.ask("w1", "GetGitFiles", append([][]byte{own, words(3, "main"), words(4, "*.json"), number(2, 1)}, parts...)...)
		return err
	}
	if err := ask(); err != nil || len(h.asked) != 2 {
		t.Fatalf("%v, asked %q", err, h.asked)
	}
	look, files := h.asked[0], h.asked[1]
	if !bytes.HasPrefix(look, own) || last(look, path{manifestRevision}) != "main" || last(look, path{manifestSource, 1}) != ours || !isTrue(look, path{manifestNoCache}) {
		t.Errorf("to look at links it is asked %q", look)
	}
	if last(files, path{filesRevision}) != "looked-at" || isTrue(files, path{filesSubmodules}) || last(files, path{4}) != "*.json" {
		t.Errorf("for files it is asked %q", files)
	}
	if err := ask(number(filesSafely, 1)); err != nil || len(h.asked) != 2 || !isTrue(h.asked[1], path{filesSubmodules}) {
		t.Errorf("where it does not follow links: %v, asked %q", err, h.asked)
	}
	if err := ask(number(filesSafely, 1), number(filesSafely, 0)); err != nil || len(h.asked) != 2 || isTrue(h.asked[1], path{filesSubmodules}) {
		t.Errorf("said twice: %v, asked %q", err, h.asked)
	}
	if err := ask(words(filesRevision, "fail")); status.Code(err) != codes.NotFound || len(h.asked) != 1 {
		t.Errorf("where links lead elsewhere: %v, asked %q", err, h.asked)
	}
}

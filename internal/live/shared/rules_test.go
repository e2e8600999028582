package shared

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/proxy/sharedmode"
)

// repositorySecret is one as Argo CD keeps them.
func repositorySecret(t *testing.T, secretType string, pairs ...string) *kind.Object {
	t.Helper()
	data := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		data[pairs[i]] = base64.StdEncoding.EncodeToString([]byte(pairs[i+1]))
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "data": data, "metadata": map[string]any{
		"name": "x", "namespace": "argocd", "uid": "u", "resourceVersion": "1", "labels": map[string]string{"argocd.argoproj.io/secret-type": secretType}}})
	if err != nil {
		t.Fatal(err)
	}
	o, err := kind.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestPermit_Repositories(t *testing.T) {
	a := newRepositoryAccess("w1", true)
	a.projects = [][]string{{"https://git.example.com/team/*", "https://git.example.com/all/*"}, {"https://charts.example.com"}}
	for _, s := range []struct {
		placed bool
		kind   string
		pairs  []string
	}{
		{true, "repository", []string{"url", "https://elsewhere.example.com/scoped", "project", "mine", "password", "x", "proxy", "http://proxy"}},
		{false, "repository", []string{"url", "https://git.example.com/team/secret.git", "project", "theirs", "password", "x"}},
		{false, "repository", []string{"url", "https://git.example.com/team/open", "project", "theirs"}},
		{false, "repository", []string{"url", "https://git.example.com/team/common", "password", "x"}},
		{false, "repository", []string{"url", "https://git.example.com/team/both", "project", "theirs", "sshPrivateKey", "x"}},
		{true, "repository", []string{"url", "https://git.example.com/team/both", "project", "mine", "proxy", "http://other"}},
		{false, "repo-creds", []string{"url", "https://git.example.com/all/hidden-", "project", "theirs", "password", "x", "proxy", "http://theirs"}},
		{true, "repo-creds", []string{"url", "https://git.example.com/", "project", "mine", "password", "x"}},
		{false, "repository", []string{"url", "", "project", "theirs", "password", "x"}},
	} {
		a.add(repositorySecret(t, s.kind, s.pairs...), s.placed)
	}
	for address, want := range map[string]string{
		"https://git.example.com/team/app.git":     "",
		"https://git.example.com/team/open":        "",
		"https://git.example.com/team/common.git":  "",
		"https://git.example.com/team/both.git":    "",
		"https://charts.example.com":               "",
		"https://elsewhere.example.com/scoped":     "",
		"https://git.example.com/all/seen":         "",
		"https://git.example.com/all/hidden-one":   "is registered on the hub for a project that is not placed on agent w1",
		"https://git.example.com/team/secret":      "is registered on the hub for a project that is not placed on agent w1",
		"https://git.example.com/team/SECRET.git":  "is registered on the hub for a project that is not placed on agent w1",
		"https://git.example.com/other/app":        "repository https://git.example.com/other/app is not of a project that is placed on agent w1",
		"https://git.example.com/team/deeper/app":  "is not of a project",
		"https://elsewhere.example.com/scoped/two": "is not of a project",
		"https://git.example.com/%zz":              "has no URL",
		"":                                         "has no URL",
	} {
		err := a.permit(address)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if len(a.proxies) != 2 || !a.proxies["http://proxy"] || !a.proxies["http://other"] {
		t.Errorf("proxies %v", a.proxies)
	}
}

func TestPermit_AutonomousAgentGetsNoCredentials(t *testing.T) {
	a := newRepositoryAccess("w1", false)
	a.projects = [][]string{{"*"}}
	a.add(repositorySecret(t, "repository", "url", "https://git.example.com/hub/private", "password", "x"), false)
	a.add(repositorySecret(t, "repository", "url", "https://git.example.com/hub/open"), false)
	a.add(repositorySecret(t, "repo-creds", "url", "https://git.example.com/all/", "password", "x"), false)
	a.add(repositorySecret(t, "repository", "url", "https://git.example.com/hub/azure", "useAzureWorkloadIdentity", "true"), false)
	a.add(repositorySecret(t, "repository", "url", "https://git.example.com/hub/plain", "useAzureWorkloadIdentity", "false"), false)
	for address, open := range map[string]bool{
		"https://git.example.com/hub/private.git": false,
		"https://git.example.com/hub/open":        true,
		"https://git.example.com/all/one":         false,
		"https://git.example.com/hub/azure":       false,
		"https://git.example.com/hub/plain":       true,
		"https://git.example.com/its/own":         true,
	} {
		if err := a.permit(address); (err == nil) != open || err != nil && !strings.Contains(err.Error(), "autonomous agent w1") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestRepositoryAccess_ReadsSecrets(t *testing.T) {
	a := newRepositoryAccess("w1", true)
	a.add(repositorySecret(t, "repository", "url", "https://a.example.com", "githubAppEnterpriseBaseUrl", "https://theirs", "gcpServiceAccountKey", "theirs", "useAzureWorkloadIdentity", "true"), false)
	a.add(repositorySecret(t, "repository", "url", "https://b.example.com", "githubAppEnterpriseBaseUrl", "https://github.corp/api/v3", "useAzureWorkloadIdentity", "false"), true)
	a.add(repositorySecret(t, "repo-creds", "url", "https://c.example.com", "gcpServiceAccountKey", "{}\n"), true)
	if len(a.githubAPIs) != 1 || !a.githubAPIs["https://github.corp/api/v3"] || len(a.googleKeys) != 1 || !a.googleKeys["{}"] || a.azureIdentity {
		t.Errorf("%+v", a)
	}
	a.add(repositorySecret(t, "repo-creds", "url", "https://d.example.com", "useAzureWorkloadIdentity", "true"), true)
	a.add(repositorySecret(t, "repository", "url", "https://e.example.com"), true)
	if !a.azureIdentity {
		t.Error("the hub's identity is denied although the agent has a Secret with it")
	}
}

func TestRepositoryAccess_InsecureOnlyFromHub(t *testing.T) {
	a := newRepositoryAccess("w1", true)
	a.add(repositorySecret(t, "repository", "url", "https://a.example.com", "insecure", "true", "proxy", "http://p", "noProxy", "*"), false)
	a.add(repositorySecret(t, "repository", "url", "https://b.example.com", "insecure", "false", "proxy", "http://p", "noProxy", ".corp"), true)
	if a.insecure || len(a.noProxies) != 1 || !a.noProxies[".corp"] {
		t.Errorf("%+v", a)
	}
	for _, key := range []string{"insecure", "insecureIgnoreHostKey", "insecureOCIForceHttp"} {
		a.insecure = false
		a.add(repositorySecret(t, "repository", "url", "https://c.example.com", key, "true"), true)
		if !a.insecure {
			t.Errorf("%s of a Secret that it has does not count", key)
		}
	}
}

func TestSourceTexts_AllStrings(t *testing.T) {
	app, err := kind.Parse([]byte(`{"metadata":{"name":"x"},"status":{"sync":"http://status"},"operation":{"sync":{"source":"http://operation"}},"spec":{
		"source":{"helm":{"valueFiles":["https://one","two"],"passCredentials":true}},
		"sources":[{"plugin":{"name":"vault","env":[{"name":"A","value":"b"}],"parameters":[{"map":{"key":"value"}}]}}],
		"sourceHydrator":{"drySource":{"path":"dry"},"syncSource":{"path":"sync"}},
		"destination":{"name":"elsewhere"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	said := sourceTexts(app)
	for text, want := range map[string]bool{"https://one": true, "two": true, "vault": true, "A": true, "b": true, "key": true, "value": true, "dry": true,
		"sync": false, "elsewhere": false, "http://status": false, "http://operation": false} {
		if said[text] != want {
			t.Errorf("%s: %v", text, said[text])
		}
	}
	if len(sourceTexts(nil)) != 0 {
		t.Error("what is not there says something")
	}
}

func TestReadBuildSettings_FromArgoCDConfig(t *testing.T) {
	var rules sharedmode.Rules
	readBuildSettings(map[string]string{"kustomize.buildOptions": "--a", "kustomize.buildOptions.v5": "--b", "kustomize.version.v5": "/bin/k5",
		"kustomize.path.v4": "/bin/k4", "helm.valuesFileSchemes": "https, s3", "other": "x", "jsonnet.enable": "false", "helm.enable": "true", "kustomize.enable": ""}, &rules)
	for what, is := range map[string]bool{
		"types":   len(rules.SourceTypesOff) == 1 && rules.SourceTypesOff["Directory"] == "jsonnet.enable",
		"options": len(rules.BuildOptions) == 2 && rules.BuildOptions["--a"] && rules.BuildOptions["--b"],
		"paths":   len(rules.Programs) == 2 && rules.Programs["/bin/k5"] && rules.Programs["/bin/k4"],
		"schemes": len(rules.ValuesSchemes) == 2 && rules.ValuesSchemes["https"] && rules.ValuesSchemes["s3"],
	} {
		if !is {
			t.Errorf("%s: %+v", what, rules)
		}
	}
	readBuildSettings(nil, &rules)
	if len(rules.BuildOptions)+len(rules.Programs)+len(rules.SourceTypesOff) != 0 || !rules.ValuesSchemes["http"] || !rules.ValuesSchemes["https"] {
		t.Errorf("without settings: %+v", rules)
	}
}

package resource

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

const secretJSON = `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","annotations":{"kubectl.kubernetes.io/last-applied-configuration":` +
	`"{\"data\":{\"a\":\"aGVsbG8=\"},\"kind\":\"Secret\",\"stringData\":{\"b\":\"hello\"}}","x":"y"}},"data":{"a":"aGVsbG8=","b":"b3RoZXI=","c":""},"type":"Opaque"}`

func masked(value string) string {
	m := masks{key: []byte("key")}
	return base64.StdEncoding.EncodeToString([]byte(m.mask(value)))
}

// secretStage has an API server that answers with the given text.
func secretStage(t *testing.T, text string, policy Policy) *stage {
	t.Helper()
	return newStage(t, fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		if accept := r.Header.Get("Accept"); policy.Secrets != SecretsPlain && strings.Contains(accept, "protobuf") {
			t.Errorf("asked for %s", accept)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, text)
	}), options{agent: func(c *AgentConfig) { c.Policy, c.MaskKey = policy, []byte("key") }})
}

func TestMasks_HideValues(t *testing.T) {
	for name, text := range map[string]string{
		"an object":         secretJSON,
		"a list":            `{"kind":"SecretList","metadata":{},"items":[` + secretJSON + `]}`,
		"a table":           `{"kind":"Table","rows":[{"cells":["s"],"object":` + secretJSON + `}]}`,
		"an event of watch": `{"type":"ADDED","object":` + secretJSON + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := secretStage(t, text, Policy{Level: LevelAll})
			_, body := s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/secrets/s", nil, "Accept", "application/vnd.kubernetes.protobuf,application/json")
			if !json.Valid(body) {
				t.Fatalf("not JSON: %s", body)
			}
			for _, hidden := range []string{"aGVsbG8=", "b3RoZXI=", "hello"} {
				if strings.Contains(string(body), hidden) {
					t.Errorf("%s is in %s", hidden, body)
				}
			}
			for _, shown := range []string{`"a":"` + masked("hello") + `"`, `"b":"` + masked("other") + `"`, `"c":""`, `"x":"y"`, `"Opaque"`, `\"a\":\"` + masked("hello")} {
				contains(t, body, shown)
			}
		})
	}
}

func TestMasks_LeaveOtherObjectsUnchanged(t *testing.T) {
	s := secretStage(t, secretJSON, Policy{Level: LevelAll, Secrets: SecretsPlain})
	if _, body := s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/secrets/s", nil); string(body) != secretJSON {
		t.Errorf("got %s", body)
	}
	s = secretStage(t, secretJSON, Policy{Level: LevelAll})
	if _, body := s.ask(t, s.client, http.MethodGet, "/apis/example.com/v1/namespaces/a/secrets/s", nil); string(body) != secretJSON {
		t.Errorf("of another group: got %s", body)
	}
}

func TestMasks_WatchStreams(t *testing.T) {
	next := make(chan string)
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for event := range next {
			_, _ = io.WriteString(w, event+"\n")
			_ = http.NewResponseController(w).Flush()
		}
	}), options{})
	defer close(next)
	go func() { next <- `{"type":"ADDED","object":` + secretJSON + `}` }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.address+"/api/v1/secrets?watch=1", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for range 3 {
		if !lines.Scan() || !strings.Contains(lines.Text(), "ADDED") || strings.Contains(lines.Text(), "aGVsbG8=") {
			t.Fatalf("got %q, %v", lines.Text(), lines.Err())
		}
		next <- `{"type":"ADDED","object":` + secretJSON + `}`
	}
	go func() { lines.Scan() }()
}

func TestMasks_AreNeverWritten(t *testing.T) {
	s := secretStage(t, secretJSON, Policy{Level: LevelAll})
	for _, body := range []string{`{"data":{"a":"` + masked("x") + `"}}`, `{"stringData":{"a":"` + maskPrefix + `0"}}`} {
		for _, method := range []string{http.MethodPut, http.MethodPatch, http.MethodPost} {
			response, answer := s.ask(t, s.client, method, "/api/v1/namespaces/a/secrets/s", strings.NewReader(body))
			if status := statusOf(t, response, answer); status.Code != http.StatusUnprocessableEntity || !strings.Contains(status.Message, SettingSecrets) {
				t.Errorf("%s: %s", method, answer)
			}
		}
	}
	if response, _ := s.ask(t, s.client, http.MethodPut, "/api/v1/namespaces/a/secrets/s", strings.NewReader(secretJSON)); response.StatusCode != http.StatusOK {
		t.Errorf("a real value: %s", response.Status)
	}
}

func TestMasks_RejectPatchesThatMoveValues(t *testing.T) {
	s := secretStage(t, secretJSON, Policy{Level: LevelAll})
	for _, body := range []string{
		`[{"op":"add","path":"/metadata/annotations","value":{}},{"op":"copy","from":"/data/a","path":"/metadata/annotations/a"}]`,
		`[{"op":"move","from":"/data/a","path":"/metadata/labels/a"}]`,
		`[{"op":"add","op":"copy","from":"/data","path":"/metadata/annotations"}]`, `[{"from":"/data"}]`, `{}`,
	} {
		for _, content := range []string{"application/json-patch+json", "application/json-patch+json; charset=utf-8", "application/json-patch+json;="} {
			// A dry run, which is a look, would show it too.
			response, answer := s.ask(t, s.client, http.MethodPatch, "/api/v1/namespaces/a/secrets/s?dryRun=All", strings.NewReader(body), "Content-Type", content)
			if status := statusOf(t, response, answer); status.Code != http.StatusForbidden || !strings.Contains(status.Message, SettingSecrets) {
				t.Errorf("%s %s: %s", content, body, answer)
			}
		}
	}
	for content, body := range map[string]string{
		"application/json-patch+json":  `[{"op":"test","path":"/type","value":"Opaque"},{"op":"replace","path":"/data/a","value":"YQ=="}]`,
		"application/merge-patch+json": `{"data":{"a":"YQ=="}}`,
	} {
		if response, answer := s.ask(t, s.client, http.MethodPatch, "/api/v1/namespaces/a/secrets/s", strings.NewReader(body), "Content-Type", content); response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", body, answer)
		}
	}
}

func TestMasks_HideValuesInErrors(t *testing.T) {
	m := &masks{key: []byte("key")}
	got, err := m.document([]byte(`{"kind":"Status","status":"Failure","message":" \"\" is invalid: patch: Invalid value: \"{\\\"data\\\":{\\\"a\\\":\\\"aGVsbG8=\\\"}}\"","reason":"Invalid",` +
		`"details":{"causes":[{"reason":"FieldValueInvalid","message":"aGVsbG8=","field":"patch"}]},"code":422}`))
	if err != nil || !json.Valid(got) || strings.Contains(string(got), "aGVsbG8=") || !strings.Contains(string(got), SettingSecrets) {
		t.Errorf("got %s, %v", got, err)
	}
	other := `{"kind":"Status","status":"Failure","message":"secrets \"s\" not found","reason":"NotFound","details":{"name":"s","kind":"secrets"},"code":404}`
	if got, err = m.document([]byte(other)); err != nil || string(got) != other {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestMasks_RejectOtherFormats(t *testing.T) {
	s := newStage(t, fakeServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = io.WriteString(w, "hello")
	}), options{})
	response, body := s.ask(t, s.client, http.MethodGet, "/api/v1/namespaces/a/secrets/s", nil)
	if status := statusOf(t, response, body); status.Code != http.StatusBadGateway || strings.Contains(string(body), "hello") {
		t.Errorf("got %s", body)
	}
}

func FuzzMasks(f *testing.F) {
	f.Add([]byte(secretJSON))
	f.Add([]byte(`{"items":[{"data":{"a":1,"a":"x"}}],"rows":null,"object":{"data":[]}}`))
	m := masks{key: []byte("key")}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return
		}
		covered, err := m.document(b)
		if err == nil && !json.Valid(covered) {
			t.Fatalf("%q became %q", b, covered)
		}
	})
}

func TestMasks_KeepArgoCDsMasks(t *testing.T) {
	m := &masks{key: []byte("key")}
	hidden := `{"kind":"Secret","data":{"a":"++++++++","b":"","c":[1]},"stringData":{"d":"++++"}}`
	covered, err := m.document([]byte(hidden))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"Secret","data":{"a":"++++++++","b":"","c":"` + masked("") + `"},"stringData":{"d":"++++"}}`
	if string(covered) != want {
		t.Errorf("\n got %s\nwant %s", covered, want)
	}
}

package kind

import "testing"

func TestServiceAccountUser_FirstMatchingEntryDecides(t *testing.T) {
	const here = `"server":"https://kubernetes.default.svc"`
	for _, c := range []struct{ title, to, entries, want string }{
		{"none", "a", ``, ""},
		{"no list", "a", `{}`, ""},
		{"name", "a", `[{` + here + `,"namespace":"a","defaultServiceAccount":"deployer"}]`, "system:serviceaccount:a:deployer"},
		{"other namespace", "a", `[{` + here + `,"namespace":"b","defaultServiceAccount":"deployer"}]`, ""},
		{"namespace of the account", "a", `[{` + here + `,"namespace":"*","defaultServiceAccount":"accounts:deployer"}]`, "system:serviceaccount:accounts:deployer"},
		{"first", "a", `[{` + here + `,"namespace":"b*","defaultServiceAccount":"x"},{` + here + `,"namespace":"a*","defaultServiceAccount":"y"},{` + here + `,"namespace":"*","defaultServiceAccount":"z"}]`, "system:serviceaccount:a:y"},
		{"other cluster", "a", `[{"server":"https://other","namespace":"*","defaultServiceAccount":"x"}]`, ""},
		{"no destination namespace", "", `[{` + here + `,"namespace":"*","defaultServiceAccount":"x"}]`, "system:serviceaccount:argo:x"},
		{"empty name", "a", `[{` + here + `,"namespace":"*","defaultServiceAccount":""}]`, ""},
		{"three parts", "a", `[{` + here + `,"namespace":"*","defaultServiceAccount":"a:b:c"}]`, ""},
	} {
		app := object(t, `{"metadata":{"name":"a","namespace":"argo"},"spec":{"destination":{"namespace":"`+c.to+`"}}}`)
		spec := `{}`
		if c.entries != "" {
			spec = `{"destinationServiceAccounts":` + c.entries + `}`
		}
		if got := ServiceAccountUser(app, object(t, `{"metadata":{"name":"p"},"spec":`+spec+`}`)); got != c.want {
			t.Errorf("%s: %q", c.title, got)
		}
	}
}

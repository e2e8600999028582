package kind

import (
	"fmt"
	"strings"
	"testing"
)

// large is an Application of about 5 KB, with a status of the common size.
func large(namespace, metadata string) string {
	var values, resources strings.Builder
	for i := range 30 {
		fmt.Fprintf(&values, `,"parameter-%02d":{"enabled":true,"replicas":%d,"image":"registry.example.org/team/app:v1.%d"}`, i, i, i)
		if i > 0 {
			resources.WriteString(",")
		}
		fmt.Fprintf(&resources, `{"group":"apps","version":"v1","kind":"Deployment","namespace":"guestbook","name":"app-%d","status":"Synced","health":{"status":"Healthy"}}`, i)
	}
	return `{"apiVersion":"argoproj.io/v1alpha1","kind":"Application","metadata":{"name":"guestbook","namespace":"` + namespace + `","uid":"u","resourceVersion":"1","labels":{"team":"web","env":"prod"}` + metadata + `},
		"spec":{"project":"web","destination":{"name":"in-cluster","namespace":"guestbook"},"source":{"repoURL":"https://example.org/apps.git","path":"guestbook","targetRevision":"main","helm":{"valuesObject":{"first":1` + values.String() + `}}},"syncPolicy":{"automated":{"prune":true}}},
		"status":{"reconciledAt":"2026-01-01T00:00:00Z","health":{"status":"Healthy"},"sync":{"status":"Synced","revision":"abc"},"resources":[` + resources.String() + `]}}`
}

func benchmarkPublish(b *testing.B, k Kind, w *Env, text string) {
	b.Helper()
	o := object(b, text)
	b.ReportAllocs()
	b.SetBytes(int64(len(o.Raw())))
	for b.Loop() {
		if _, ok := k.Publish(o, w); !ok {
			b.Fatal("not published")
		}
	}
}

func BenchmarkPublishApplication(b *testing.B) {
	benchmarkPublish(b, ApplicationKind{}, managedHub(), large("one-ns", ""))
}

func BenchmarkPublishAutonomousApplication(b *testing.B) {
	benchmarkPublish(b, ApplicationKind{}, autoSpoke(), large("argo", ""))
}

func BenchmarkPublishStatus(b *testing.B) {
	benchmarkPublish(b, StatusKind{}, managedSpoke(), large("argo", `,`+marked))
}

func BenchmarkReflectApplication(b *testing.B) {
	o, w := object(b, large("argo", `,`+marked)), managedSpoke()
	b.ReportAllocs()
	b.SetBytes(int64(len(o.Raw())))
	for b.Loop() {
		if _, ok := (ApplicationKind{}).ReadReplica(o, w); !ok {
			b.Fatal("not held")
		}
	}
}

func BenchmarkMergeApplication(b *testing.B) {
	item, _ := ApplicationKind{}.Publish(object(b, large("one-ns", "")), managedHub())
	local, w := object(b, large("argo", `,`+marked)), managedSpoke()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (ApplicationKind{}).Merge(local, item.Key, item.Content, nil, Ownership{}, w); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMergeStatus(b *testing.B) {
	item, _ := StatusKind{}.Publish(object(b, large("argo", `,`+marked)), managedSpoke())
	local, w := object(b, large("one-ns", "")), managedHub()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (StatusKind{}).Merge(local, item.Key, item.Content, item.Extra, Ownership{}, w); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	text := []byte(large("argo", `,`+marked))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPublishProject(b *testing.B) {
	benchmarkPublish(b, AppProjectKind{}, managedHub(), `{"metadata":{"name":"p","namespace":"argocd","uid":"u"},"spec":{"sourceNamespaces":["one-*"],
		"destinations":[{"name":"two","namespace":"a"},{"name":"o*","namespace":"team-*"},{"server":"*","namespace":"!kube-system"}]}}`)
}

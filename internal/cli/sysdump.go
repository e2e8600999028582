package cli

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"sigs.k8s.io/yaml"

	"github.com/argocd-agent/argocd-agent/api/agents/v1alpha1"
)

// Bounds of a dump.
const (
	dumpPage       = 500
	maxDumpObjects = 5000
	maxLogBytes    = 10 << 20
	maxMetricBytes = 64 << 20
	dumpTimeout    = 30 * time.Second // of one file
)

// dumpKind is a kind of objects in a dump, with the fields that it contains. Fields that users can put credentials in
// are not listed, such as Helm values.
type dumpKind struct {
	resource schema.GroupVersionResource
	fields   fieldMask
	everyNS  bool   // on the hub, all namespaces
	selector string // labels
	names    []string
}

func dumpKinds() []dumpKind {
	group := func(group, version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	}
	const source = "repoURL path chart targetRevision ref"
	var application []string
	for field := range strings.FieldsSeq(source) {
		application = append(application, "spec.source."+field, "spec.sources."+field)
	}
	application = append(application, "spec.project", "spec.destination", "spec.syncPolicy.automated", "spec.syncPolicy.syncOptions", "spec.syncPolicy.retry", "status.health.status", "status.sync.status", "status.sync.revision",
		"status.sync.revisions", "status.conditions.type", "status.conditions.message", "status.conditions.lastTransitionTime", "status.operationState.phase",
		"status.operationState.startedAt", "status.operationState.finishedAt", "status.reconciledAt", "status.controllerNamespace")
	workload := mask("kind", "spec.replicas", "spec.strategy", "spec.selector", "status", "spec.template.metadata.labels", "spec.template.spec.serviceAccountName",
		"spec.template.spec.containers.name", "spec.template.spec.containers.image", "spec.template.spec.containers.args", "spec.template.spec.containers.command",
		"spec.template.spec.containers.env", "spec.template.spec.containers.envFrom", "spec.template.spec.containers.resources", "spec.template.spec.containers.ports")
	const both = partOfLabel + " in (" + argoPartOf + "," + ourPartOf + ")"
	return []dumpKind{
		{resource: group(v1alpha1.Group, v1alpha1.Version, v1alpha1.Resource), fields: mask("spec", "status")},
		{resource: group(v1alpha1.Group, v1alpha1.Version, "agentpolicies"), fields: mask("spec", "status")},
		{resource: group("argoproj.io", "v1alpha1", "applications"), fields: mask(application...), everyNS: true},
		{resource: group("argoproj.io", "v1alpha1", "appprojects"), fields: mask("spec.sourceRepos", "spec.destinations", "spec.sourceNamespaces", "spec.clusterResourceWhitelist",
			"spec.namespaceResourceWhitelist")},
		{resource: group("apps", "v1", "deployments"), fields: workload},
		{resource: group("apps", "v1", "statefulsets"), fields: workload},
		{resource: group("", "v1", "pods"), selector: both, fields: mask("spec.nodeName", "spec.containers.name", "spec.containers.image", "spec.containers.resources", "status.phase",
			"status.conditions", "status.containerStatuses", "status.startTime", "status.reason", "status.message")},
		{resource: group("", "v1", "services"), fields: mask("spec.type", "spec.ports", "spec.selector", "status")},
		{resource: group("", "v1", "events"), fields: mask("type", "reason", "message", "count", "firstTimestamp", "lastTimestamp", "eventTime", "involvedObject")},
		{resource: group("", "v1", "configmaps"), fields: mask("kind")},
		{resource: group("coordination.k8s.io", "v1", "leases"), fields: mask("spec")},
		{resource: group("networking.k8s.io", "v1", "networkpolicies"), fields: mask("spec")},
		{resource: group("apiextensions.k8s.io", "v1", "customresourcedefinitions"), names: []string{"applications.argoproj.io", "appprojects.argoproj.io", "agents." + v1alpha1.Group,
			"agentpolicies." + v1alpha1.Group}, fields: mask("spec.versions.name", "spec.versions.served", "status.conditions", "status.storedVersions")},
	}
}

func (p *Program) sysdumpCommand() *cobra.Command {
	var file string
	var since, profile time.Duration
	cmd := &cobra.Command{
		Use:   "sysdump",
		Short: "Collect information for a support request",
		Long: `Collects logs, settings, objects, metrics and profiles of the hub into one archive. With --agent-context, also those
of a workload cluster. Nothing is changed.

Secrets are not read, only their names. Objects are reduced to listed fields, without Helm values, annotations and the
content of ConfigMaps. Settings with names of credentials, and texts that look like credentials, are replaced with
REDACTED. The archive has names of clusters, namespaces, repositories and users. Read it before you share it.

Profiles need --pprof-port of the principal and the agent. What cannot be read is listed in problems.txt.`,
		Example: `  argocd-agentctl sysdump
  argocd-agentctl sysdump --agent-context w1 --since 2h --file dump.tar.gz`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hub, err := p.hub()
			if err != nil {
				return err
			}
			sides := []*cluster{hub}
			if p.global.agentContext != "" {
				spoke, err := p.spoke()
				if err != nil {
					return err
				}
				sides = append(sides, spoke)
			}
			now := p.Now().UTC()
			file = cmp.Or(file, "argocd-agent-sysdump-"+now.Format("20060102-150405")+".tar.gz")
			return p.writeDump(cmd.Context(), file, sides, dumpOptions{now: now, since: since, profile: profile})
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "`FILE` to write. It must not exist. If unset, a name with the time in the current directory.")
	cmd.Flags().DurationVar(&since, "since", 24*time.Hour, "Age of the oldest log line.")
	cmd.Flags().DurationVar(&profile, "cpu-profile", 0, "Duration of a CPU profile of each pod. If unset, none.")
	return cmd
}

type dumpOptions struct {
	now            time.Time
	since, profile time.Duration
}

// writeDump writes the archive. If it fails, it removes the file.
func (p *Program) writeDump(ctx context.Context, file string, sides []*cluster, o dumpOptions) (err error) {
	out, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create the archive: %w", err)
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			_ = os.Remove(file) // the first error counts
		}
	}()
	zipped := gzip.NewWriter(out)
	d := &dump{Program: p, dumpOptions: o, out: tar.NewWriter(zipped)}
	for _, side := range sides {
		name := "hub"
		if side.flag == roleAgent {
			name = "workload-cluster"
		}
		if err := d.side(ctx, name, side); err != nil {
			return err
		}
	}
	if err := d.add("problems.txt", strings.Join(d.problems, "\n")+"\n"); err != nil {
		return err
	}
	if err := errors.Join(d.out.Close(), zipped.Close()); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	fmt.Fprintf(p.Stdout, "Wrote %s: %s, %s. Read it before you share it.\n", file, pluralize(d.files, "file"), pluralize(len(d.problems), "problem"))
	return nil
}

// dump is an archive that is being written.
type dump struct {
	*Program
	dumpOptions
	out      *tar.Writer
	files    int
	problems []string
}

// add adds a text, without what looks like a secret.
func (d *dump) add(name, text string) error { return d.write(name, []byte(redactText(text))) }

func (d *dump) write(name string, content []byte) error {
	d.files++
	err := d.out.WriteHeader(&tar.Header{Name: "argocd-agent-sysdump/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: d.now})
	if err == nil {
		_, err = d.out.Write(content)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// collect adds a file, or the reason why there is none.
func (d *dump) collect(ctx context.Context, name string, read func(context.Context) (string, error)) error {
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout+d.profile)
	defer cancel()
	text, err := read(ctx)
	if err != nil {
		d.problems = append(d.problems, redactText(name+": "+strings.ReplaceAll(err.Error(), "\n", " ")))
		return nil
	}
	return d.add(name, text)
}

// side adds the files of one cluster.
func (d *dump) side(ctx context.Context, name string, c *cluster) error {
	check, deployment := d.checkHub, principalDeployment
	if c.flag == roleAgent {
		check, deployment = d.checkSpoke, agentDeployment
	}
	if err := d.collect(ctx, name+"/doctor.json", func(ctx context.Context) (string, error) {
		found, _ := check(ctx, c, checkOptions{offline: true})
		text, err := json.MarshalIndent(found, "", "  ")
		return string(text), err
	}); err != nil {
		return err
	}
	set := &settings{}
	if err := d.collect(ctx, name+"/settings.yaml", func(ctx context.Context) (text string, err error) {
		set, err = c.settings(ctx, deployment, "")
		if err != nil {
			set = &settings{}
			return "", err
		}
		return settingsText(set)
	}); err != nil {
		return err
	}
	for _, kind := range dumpKinds() {
		if err := d.collect(ctx, name+"/objects/"+kind.resource.Resource+".yaml", func(ctx context.Context) (string, error) {
			return c.dumpObjects(ctx, kind)
		}); err != nil {
			return err
		}
	}
	if err := d.collect(ctx, name+"/objects/secret-names.txt", c.secretNames); err != nil {
		return err
	}
	return d.pods(ctx, name, c, deployment, set)
}

func settingsText(set *settings) (string, error) {
	env, flags := map[string]string{}, map[string]string{}
	for name, value := range set.env {
		env[name] = redactSetting(name, value)
	}
	for name, value := range set.flags {
		flags[name] = redactSetting(name, value)
	}
	text, err := yaml.Marshal(map[string]any{"deployment": set.name, "installed": set.installed, "ready": set.ready, "image": set.image, "environment": env, "flags": flags})
	return string(text), err
}

// dumpObjects returns the objects of a kind as YAML documents.
func (c *cluster) dumpObjects(ctx context.Context, kind dumpKind) (string, error) {
	var b strings.Builder
	if len(kind.names) > 0 {
		for _, name := range kind.names {
			object, err := c.dynamic.Resource(kind.resource).Get(ctx, name, metav1.GetOptions{})
			if notFound(err) {
				continue
			} else if err != nil {
				return "", c.explain(err)
			}
			if err := writeObject(&b, object.Object, kind.fields); err != nil {
				return "", err
			}
		}
		return b.String(), nil
	}
	namespace := c.namespace
	if kind.everyNS {
		namespace = ""
	}
	options := metav1.ListOptions{Limit: dumpPage, LabelSelector: kind.selector}
	for count := 0; ; {
		list, err := c.dynamic.Resource(kind.resource).Namespace(namespace).List(ctx, options)
		if notFound(err) {
			return "# The kind is not installed.\n", nil
		} else if err != nil {
			return "", c.explain(err)
		}
		for i := range list.Items {
			if err := writeObject(&b, list.Items[i].Object, kind.fields); err != nil {
				return "", err
			}
		}
		count += len(list.Items)
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return b.String(), nil
		}
		if count >= maxDumpObjects {
			return b.String() + "# There are more.\n", nil
		}
	}
}

func writeObject(b *strings.Builder, object map[string]any, fields fieldMask) error {
	text, err := yaml.Marshal(redactObject(object, fields))
	if err != nil {
		return fmt.Errorf("encode an object: %w", err)
	}
	b.WriteString("---\n")
	b.Write(text)
	return nil
}

// secretNames returns the names of the Secrets. It requests only their metadata, so that no content leaves the API server.
func (c *cluster) secretNames(ctx context.Context) (string, error) {
	client, err := metadata.NewForConfig(c.config)
	if err != nil {
		return "", err
	}
	list, err := client.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).Namespace(c.namespace).List(ctx, metav1.ListOptions{Limit: maxDumpObjects})
	if err != nil {
		return "", c.explain(err)
	}
	var b strings.Builder
	for i := range list.Items {
		secret := &list.Items[i]
		fmt.Fprintf(&b, "%s\tcreated %s\t%s\n", secret.Name, secret.CreationTimestamp.UTC().Format(time.RFC3339), strings.Join(secret.Finalizers, ","))
	}
	return b.String(), nil
}

// pods adds logs, health, metrics and profiles of the pods of our component.
func (d *dump) pods(ctx context.Context, name string, c *cluster, deployment string, set *settings) error {
	list, err := c.kube.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: ourPods(deployment), Limit: maxPods})
	if err != nil {
		d.problems = append(d.problems, fmt.Sprintf("%s/pods: %v", name, c.explain(err)))
		return nil
	}
	pprof := cmp.Or(set.get("pprof-port"), set.env["ARGOCD_PRINCIPAL_PPROF_PORT"], set.env["ARGOCD_AGENT_PPROF_PORT"], "0")
	for i := range list.Items {
		pod := &list.Items[i]
		at := name + "/pods/" + pod.Name + "/"
		files := map[string]func(context.Context) (string, error){
			"log.txt":          func(ctx context.Context) (string, error) { return c.podLog(ctx, pod.Name, false, d.since) },
			"log-previous.txt": func(ctx context.Context) (string, error) { return c.podLog(ctx, pod.Name, true, d.since) },
			"health.txt":       func(ctx context.Context) (string, error) { return c.healthOf(ctx, pod) },
			"metrics.txt":      func(ctx context.Context) (string, error) { return c.podMetrics(ctx, pod) },
		}
		if !restarted(pod) {
			delete(files, "log-previous.txt")
		}
		for _, file := range slices.Sorted(maps.Keys(files)) {
			if err := d.collect(ctx, at+file, files[file]); err != nil {
				return err
			}
		}
		if port, err := strconv.ParseInt(pprof, 10, 32); err == nil && port > 0 {
			if err := d.profiles(ctx, at, c, pod.Name, int32(port)); err != nil {
				return err
			}
		} else {
			d.problems = append(d.problems, at+"profiles: --pprof-port is not set")
		}
	}
	return nil
}

func restarted(pod *corev1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if status.RestartCount > 0 {
			return true
		}
	}
	return false
}

func (c *cluster) podLog(ctx context.Context, pod string, previous bool, since time.Duration) (string, error) {
	seconds, limit := int64(since.Seconds()), int64(maxLogBytes)
	options := &corev1.PodLogOptions{Previous: previous, LimitBytes: &limit, Timestamps: true}
	if seconds > 0 && !previous {
		options.SinceSeconds = &seconds
	}
	text, err := c.kube.CoreV1().Pods(c.namespace).GetLogs(pod, options).DoRaw(ctx)
	return string(text), err
}

// podMetrics reads the metrics of a pod through the API server.
func (c *cluster) podMetrics(ctx context.Context, pod *corev1.Pod) (string, error) {
	port, err := portNamed(pod, "metrics")
	if err != nil {
		return "", err
	}
	stream, err := c.kube.CoreV1().RESTClient().Get().Namespace(c.namespace).Resource("pods").Name(pod.Name + ":" + port).
		SubResource("proxy").Suffix("metrics").MaxRetries(0).Stream(ctx)
	if err != nil {
		return "", c.explain(err)
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, maxMetricBytes))
	return string(text), err
}

// profiles adds profiles of a pod. The profiler listens on the loopback address of the pod, so that only a port-forward
// reaches it. Profiles have names of functions, no data.
func (d *dump) profiles(ctx context.Context, at string, c *cluster, pod string, port int32) error {
	ctx, cancel := context.WithTimeout(ctx, dumpTimeout+d.profile)
	defer cancel()
	names := map[string]string{"goroutines.txt": "goroutine?debug=1", "heap.pprof": "heap", "allocs.pprof": "allocs"}
	if d.profile > 0 {
		names["cpu.pprof"] = fmt.Sprintf("profile?seconds=%d", int(d.profile.Seconds()))
	}
	contents := map[string][]byte{}
	if err := c.forward(ctx, pod, port, func(address string) error {
		for file, name := range names {
			content, err := fetchProfile(ctx, "http://"+address+"/debug/pprof/"+name)
			if err != nil {
				return err
			}
			contents[file] = content
		}
		return nil
	}); err != nil {
		d.problems = append(d.problems, redactText(at+"profiles: "+err.Error()))
	}
	for _, file := range slices.Sorted(maps.Keys(contents)) {
		if err := d.write(at+file, contents[file]); err != nil {
			return err
		}
	}
	return nil
}

func fetchProfile(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxMetricBytes))
}

package main

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/argocd-agent/argocd-agent/lab"
)

// object is an object other than an Application that users edit: an AppProject, a repository or the registration of an agent.
type object struct {
	resource       resource
	owner, replica location
	mapped         map[string]any // fields of the spec that mapping changes, as the replica must have them
	body           string         // merge patch of users for a number. If empty, users do not edit it
	edits          value          // of the label mark
}

// location is where an object is. An empty cluster is the active hub.
type location struct{ cluster, name string }

func (o *object) String() string { return fmt.Sprintf("%s %s", o.resource.Resource, o.owner.name) }

// protected is what the policy of an agent makes of "*": it protects the namespace of Argo CD.
const protected = "!" + lab.ArgoCDNamespace

const (
	projectName = "drill"
	projectBody = `{"metadata":{"labels":{"drill-edit":%[1]q}},"spec":{"description":%[1]q}}`
	secretBody  = `{"metadata":{"labels":{"drill-edit":%[1]q},"annotations":{"drill-edit":%[1]q}},"stringData":{"url":"https://example.com/%[1]s.git","username":"user-%[1]s"}}`
	agentBody   = `{"metadata":{"labels":{"drill-edit":%q}}}`
)

func newObjects() []*object {
	onSpoke := map[string]any{"destinations": []any{map[string]any{"name": "in-cluster", "server": inCluster, "namespace": protected}}, "sourceNamespaces": nil}
	onHub := map[string]any{"destinations": []any{map[string]any{"name": autonomous, "namespace": "*"}}, "sourceNamespaces": []any{autonomous}}
	return []*object{
		{resource: projects, owner: location{"", projectName}, replica: location{managed, projectName}, mapped: onSpoke, body: projectBody},
		{resource: projects, owner: location{"", "default"}, replica: location{managed, "default"}, mapped: onSpoke},
		{resource: projects, owner: location{autonomous, projectName}, replica: location{"", autonomous + "-" + projectName}, mapped: onHub, body: projectBody},
		{resource: projects, owner: location{autonomous, "default"}, replica: location{"", autonomous + "-default"}, mapped: onHub},
		{resource: secrets, owner: location{"", "drill-repository"}, replica: location{managed, "drill-repository"}, body: secretBody},
		{resource: agents, owner: location{"", managed}, body: agentBody},
		{resource: agents, owner: location{"", autonomous}, body: agentBody},
	}
}

// createObjects creates the AppProjects and the repository.
func (d *drill) createObjects(ctx context.Context) error {
	const project = `{apiVersion: argoproj.io/v1alpha1, kind: AppProject, metadata: {name: drill, labels: {drill-edit: "0"}},
spec: {description: "0", sourceRepos: ["*"], destinations: [{%s, namespace: "*"}], sourceNamespaces: [managed], clusterResourceWhitelist: [{group: "*", kind: "*"}]}}`
	const repository = `{apiVersion: v1, kind: Secret, metadata: {name: drill-repository, labels: {argocd.argoproj.io/secret-type: repository, drill-edit: "0"}},
stringData: {type: git, project: drill, url: "https://example.com/0.git", username: user-0, password: secret}}`
	if err := d.hub().cluster.Apply(ctx, fmt.Sprintf(project, "name: managed")+"\n---\n"+repository); err != nil {
		return err
	}
	if err := d.sites[autonomous].cluster.Apply(ctx, fmt.Sprintf(project, "server: "+strconv.Quote(inCluster))); err != nil {
		return err
	}
	d.objects = newObjects()
	return d.settleObjects(ctx, func(*object) bool { return true })
}

func (d *drill) siteOf(l location) *site {
	if l.cluster == "" {
		return d.hub()
	}
	return d.sites[l.cluster]
}

func (d *drill) get(ctx context.Context, o *object, l location) (*unstructured.Unstructured, error) {
	u, err := d.siteOf(l).client.Resource(o.resource).Namespace(lab.ArgoCDNamespace).Get(ctx, l.name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", o.resource.Resource, l.name, err)
	}
	return u, nil
}

// editObject lets users edit an object, or its replica. The latter must be undone.
func (d *drill) editObject(ctx context.Context) {
	o := d.objects[d.random.IntN(len(d.objects))]
	if o.body == "" {
		return
	}
	d.number++
	number := fmt.Sprint(d.number)
	patch := func(l location) error {
		_, err := d.siteOf(l).users.Resource(o.resource).Namespace(lab.ArgoCDNamespace).Patch(ctx, l.name, types.MergePatchType, fmt.Appendf(nil, o.body, number), metav1.PatchOptions{})
		return err
	}
	if o.replica.name != "" && d.random.IntN(4) == 0 {
		d.done("edit the replica of "+o.String(), patch(o.replica))
		return
	}
	err := patch(o.owner)
	o.edits.wrote(number, err)
	d.done("edit ("+number+") "+o.String(), err)
}

// objectDifferences returns what differs between objects and their replicas.
func (d *drill) objectDifferences(ctx context.Context) (found []string, err error) {
	for _, o := range d.objects {
		if o.replica.name == "" {
			continue
		}
		owner, err := d.get(ctx, o, o.owner)
		if err != nil {
			return nil, err
		}
		replica, err := d.get(ctx, o, o.replica)
		if err != nil {
			return nil, err
		}
		if d := o.difference(owner, replica); d != "" {
			found = append(found, fmt.Sprintf("%v on owner and replica: %s", o, d))
		}
	}
	return found, nil
}

// difference names the first member in which the replica is not what it must be, or returns "".
func (o *object) difference(owner, replica *unstructured.Unstructured) string {
	spec := without(part(owner, "spec"))
	for field, mapped := range o.mapped {
		if spec[field] = mapped; mapped == nil {
			delete(spec, field)
		}
	}
	if d := firstDifference(spec, part(replica, "spec")); d != "" {
		return "spec." + d
	}
	if d := firstDifference(part(owner, "data"), part(replica, "data")); d != "" {
		return "data." + d
	}
	return firstDifference(metadataOf(owner), metadataOf(replica))
}

// checkObjects checks that no confirmed edit is lost.
func (d *drill) checkObjects(ctx context.Context) error {
	for _, o := range d.objects {
		u, err := d.get(ctx, o, o.owner)
		if err != nil {
			return err
		}
		if now := markOf(u); !o.edits.allows(now) {
			return fmt.Errorf("%v has edit %s instead of %+v", o, now, o.edits)
		}
		o.edits.settle(markOf(u))
	}
	return nil
}

// settleObjects makes what owners have count.
func (d *drill) settleObjects(ctx context.Context, selected func(*object) bool) error {
	for _, o := range d.objects {
		if !selected(o) {
			continue
		}
		u, err := d.get(ctx, o, o.owner)
		if err != nil {
			return err
		}
		o.edits.settle(markOf(u))
	}
	return nil
}

// standbyObjects returns the objects that a hub shares with its standby.
func (d *drill) standbyObjects(ctx context.Context, hub string) (map[string]*unstructured.Unstructured, error) {
	all := map[string]*unstructured.Unstructured{}
	for _, r := range standbyResources {
		list, err := d.sites[hub].client.Resource(r.resource).Namespace(r.namespace).List(ctx, metav1.ListOptions{LabelSelector: r.selector})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			u := &list.Items[i]
			if text(u, "spec", "mode") != "standby" {
				all[fmt.Sprintf("%s %s/%s", r.resource.Resource, u.GetNamespace(), u.GetName())] = u
			}
		}
	}
	return all, nil
}

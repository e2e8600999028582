package podrun

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
)

// environment resolves the variables of the container as a kubelet does: envFrom first, then env in order. Each can
// refer to earlier ones.
func (o *Options) environment(ctx context.Context, container *corev1.Container) (map[string]string, error) {
	env := map[string]string{}
	for _, from := range container.EnvFrom {
		values, err := o.envFrom(ctx, from)
		if err != nil {
			return nil, err
		}
		for key, value := range values {
			env[from.Prefix+key] = value
		}
	}
	for _, v := range container.Env {
		value := expand(v.Value, env)
		if v.ValueFrom != nil {
			var present bool
			var err error
			value, present, err = o.valueFrom(ctx, v.ValueFrom, container)
			if err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
			if !present {
				continue
			}
		}
		env[v.Name] = value
	}
	return env, nil
}

func (o *Options) envFrom(ctx context.Context, from corev1.EnvFromSource) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		return o.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	case from.SecretRef != nil:
		return o.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
	}
	return nil, nil
}

// valueFrom returns the value of a variable, and whether it exists. An optional variable may not.
func (o *Options) valueFrom(ctx context.Context, from *corev1.EnvVarSource, container *corev1.Container) (string, bool, error) {
	switch {
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		values, err := o.configMap(ctx, ref.Name, ref.Optional)
		return lookUp(values, err, "ConfigMap "+ref.Name, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		values, err := o.secret(ctx, ref.Name, ref.Optional)
		return lookUp(values, err, "Secret "+ref.Name, ref.Key, ref.Optional)
	case from.FieldRef != nil:
		value, err := o.field(from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err := resourceField(from.ResourceFieldRef, container)
		return value, true, err
	}
	return "", false, fmt.Errorf("its kind of valueFrom is not supported here")
}

func lookUp(values map[string]string, err error, object, key string, optional *bool) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	value, ok := values[key]
	if !ok && !is(optional) {
		return "", false, fmt.Errorf("%s has no key %q", object, key)
	}
	return value, ok, nil
}

// configMap returns the data of a ConfigMap, or nil if it is optional and does not exist.
func (o *Options) configMap(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	cm, err := o.Source.ConfigMap(ctx, o.Namespace, name)
	if err != nil {
		return nil, o.missing(err, "ConfigMap", name, optional)
	}
	values := maps.Clone(cm.Data)
	if values == nil {
		values = map[string]string{}
	}
	for key, data := range cm.BinaryData {
		values[key] = string(data)
	}
	return values, nil
}

func (o *Options) secret(ctx context.Context, name string, optional *bool) (map[string]string, error) {
	secret, err := o.Source.Secret(ctx, o.Namespace, name)
	if err != nil {
		return nil, o.missing(err, "Secret", name, optional)
	}
	values := map[string]string{}
	for key, data := range secret.Data {
		values[key] = string(data)
	}
	return values, nil
}

func (o *Options) missing(err error, kind, name string, optional *bool) error {
	if apierrors.IsNotFound(err) && is(optional) {
		return nil
	}
	return fmt.Errorf("read %s %s/%s, which the pod needs: %w", kind, o.Namespace, name, err)
}

func is(b *bool) bool { return b != nil && *b }

var mapField = regexp.MustCompile(`^metadata\.(labels|annotations)\['(.*)'\]$`)

// field returns a value of the downward API for variables and volumes.
func (o *Options) field(path string) (string, error) {
	switch path {
	case "metadata.name":
		return o.Name, nil
	case "metadata.namespace":
		return o.Namespace, nil
	case "metadata.uid":
		return string(o.Template.UID), nil
	case "spec.serviceAccountName":
		return o.Template.Spec.ServiceAccountName, nil
	case "spec.nodeName":
		return "localhost", nil
	case "status.podIP", "status.hostIP", "status.podIPs", "status.hostIPs":
		return "127.0.0.1", nil
	}
	m := mapField.FindStringSubmatch(path)
	switch {
	case m == nil:
		return "", fmt.Errorf("the field %s is not supported here", path)
	case m[1] == "labels":
		return o.Template.Labels[m[2]], nil
	}
	return o.Template.Annotations[m[2]], nil
}

// resourceField returns a limit or request, divided and rounded up. Without a limit it is zero.
func resourceField(ref *corev1.ResourceFieldSelector, container *corev1.Container) (string, error) {
	var quantity resource.Quantity
	milli := false
	switch r := container.Resources; ref.Resource {
	case "limits.cpu":
		quantity, milli = r.Limits[corev1.ResourceCPU], true
	case "requests.cpu":
		quantity, milli = r.Requests[corev1.ResourceCPU], true
	case "limits.memory":
		quantity = r.Limits[corev1.ResourceMemory]
	case "requests.memory":
		quantity = r.Requests[corev1.ResourceMemory]
	default:
		return "", fmt.Errorf("the resource %s is not supported here", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	value, by := quantity.Value(), divisor.Value()
	if milli {
		value, by = quantity.MilliValue(), divisor.MilliValue()
	}
	return strconv.FormatInt((value+by-1)/by, 10), nil
}

package podrun

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Mount path of the ServiceAccount, and the name of our volume for it.
const (
	accountPath   = "/var/run/secrets/kubernetes.io/serviceaccount"
	accountVolume = "kube-api-access"
)

// volumes are the directories of a pod.
type volumes struct {
	o      *Options
	dir    string
	list   []corev1.Volume
	tokens *tokens
}

// newVolumes returns the volumes that the container mounts, and the local directory of each mount path.
func newVolumes(o *Options, container *corev1.Container) (*volumes, map[string]string, error) {
	v := &volumes{o: o, dir: filepath.Join(o.Dir, "volumes"), tokens: newTokens(o)}
	mounts := map[string]string{}
	taken := map[string]bool{}
	for _, m := range container.VolumeMounts {
		volume, err := findVolume(o.Template.Spec.Volumes, m.Name)
		if err != nil {
			return nil, nil, err
		}
		mounts[path.Clean(m.MountPath)] = filepath.Join(v.dir, m.Name, filepath.FromSlash(m.SubPath))
		if !taken[m.Name] {
			taken[m.Name] = true
			v.list = append(v.list, volume)
		}
	}
	if _, given := mounts[accountPath]; !given && o.mountsAccount() {
		v.list = append(v.list, accountAccess())
		mounts[accountPath] = filepath.Join(v.dir, accountVolume)
	}
	return v, mounts, nil
}

func (o *Options) mountsAccount() bool {
	automount := o.Template.Spec.AutomountServiceAccountToken
	return automount == nil || *automount
}

func findVolume(all []corev1.Volume, name string) (corev1.Volume, error) {
	for _, volume := range all {
		if volume.Name != name {
			continue
		}
		s := volume.VolumeSource
		if s.Secret == nil && s.ConfigMap == nil && s.Projected == nil && s.DownwardAPI == nil && s.EmptyDir == nil {
			return volume, fmt.Errorf("volume %s is of a kind that is not supported here: only secret, configMap, downwardAPI, projected and emptyDir are", name)
		}
		return volume, nil
	}
	return corev1.Volume{}, fmt.Errorf("the container mounts %s, but the pod has no such volume", name)
}

// accountAccess returns the volume that Kubernetes adds to every pod. Its ca.crt is written separately, from
// Options.Server.
func accountAccess() corev1.Volume {
	seconds := int64(3607)
	namespace := corev1.DownwardAPIVolumeFile{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}
	return corev1.Volume{Name: accountVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &seconds, Path: "token"}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{namespace}}},
		},
	}}}
}

// write updates all directories. An emptyDir is created once and not changed.
func (v *volumes) write(ctx context.Context) error {
	var errs []error
	for _, volume := range v.list {
		dir := filepath.Join(v.dir, volume.Name)
		if volume.EmptyDir != nil {
			errs = append(errs, os.MkdirAll(dir, 0o755))
			continue
		}
		files := map[string]file{}
		err := v.collect(ctx, &volume, files)
		if err == nil {
			_, err = writeVolume(dir, files)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", volume.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (v *volumes) collect(ctx context.Context, volume *corev1.Volume, files map[string]file) error {
	switch {
	case volume.Secret != nil:
		s := volume.Secret
		values, err := v.o.secret(ctx, s.SecretName, s.Optional)
		return pick(values, err, "Secret "+s.SecretName, s.Items, s.DefaultMode, s.Optional, files)
	case volume.ConfigMap != nil:
		c := volume.ConfigMap
		values, err := v.o.configMap(ctx, c.Name, c.Optional)
		return pick(values, err, "ConfigMap "+c.Name, c.Items, c.DefaultMode, c.Optional, files)
	case volume.DownwardAPI != nil:
		return v.downward(volume.DownwardAPI.Items, volume.DownwardAPI.DefaultMode, files)
	}
	if volume.Name == accountVolume {
		files["ca.crt"] = file{string(v.o.Server.CA), fileMode(nil, nil)}
	}
	for _, source := range volume.Projected.Sources {
		if err := v.project(ctx, source, volume.Projected.DefaultMode, files); err != nil {
			return err
		}
	}
	return nil
}

func (v *volumes) project(ctx context.Context, source corev1.VolumeProjection, mode *int32, files map[string]file) error {
	switch {
	case source.Secret != nil:
		s := source.Secret
		values, err := v.o.secret(ctx, s.Name, s.Optional)
		return pick(values, err, "Secret "+s.Name, s.Items, mode, s.Optional, files)
	case source.ConfigMap != nil:
		c := source.ConfigMap
		values, err := v.o.configMap(ctx, c.Name, c.Optional)
		return pick(values, err, "ConfigMap "+c.Name, c.Items, mode, c.Optional, files)
	case source.DownwardAPI != nil:
		return v.downward(source.DownwardAPI.Items, mode, files)
	case source.ServiceAccountToken != nil:
		t := source.ServiceAccountToken
		request := TokenRequest{Audience: t.Audience, Seconds: 3600}
		if t.ExpirationSeconds != nil {
			request.Seconds = *t.ExpirationSeconds
		}
		token, err := v.tokens.get(ctx, request)
		files[t.Path] = file{token, 0o600}
		return err
	}
	return errors.New("a projected source is of a kind that is not supported here")
}

func (v *volumes) downward(items []corev1.DownwardAPIVolumeFile, mode *int32, files map[string]file) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("%s: only fieldRef is supported here", item.Path)
		}
		value, err := v.o.field(item.FieldRef.FieldPath)
		if err != nil {
			return fmt.Errorf("%s: %w", item.Path, err)
		}
		files[item.Path] = file{value, fileMode(item.Mode, mode)}
	}
	return nil
}

// pick writes the values of an object to files: all keys, or the given items.
func pick(values map[string]string, err error, object string, items []corev1.KeyToPath, mode *int32, optional *bool, files map[string]file) error {
	if err != nil {
		return err
	}
	if len(items) == 0 {
		for key, value := range values {
			files[key] = file{value, fileMode(nil, mode)}
		}
		return nil
	}
	for _, item := range items {
		value, ok := values[item.Key]
		if !ok && !is(optional) {
			return fmt.Errorf("%s has no key %q", object, item.Key)
		}
		if ok {
			files[filepath.FromSlash(strings.TrimPrefix(item.Path, "./"))] = file{value, fileMode(item.Mode, mode)}
		}
	}
	return nil
}

func fileMode(own, standard *int32) fs.FileMode {
	switch {
	case own != nil:
		return fs.FileMode(*own).Perm()
	case standard != nil:
		return fs.FileMode(*standard).Perm()
	}
	return 0o644
}

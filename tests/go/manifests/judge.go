package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	securityapi "k8s.io/pod-security-admission/api"
	security "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

func summary(documents []document) string {
	counts := map[string]int{}
	for _, d := range documents {
		counts[d.kind]++
	}
	var parts []string
	for kind, count := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", count, kind))
	}
	sort.Strings(parts)
	return fmt.Sprintf("%d objects: %s", len(documents), strings.Join(parts, ", "))
}

// patched applies the strategic merge patch to the first object that it fits.
func patched(objectPath, patchPath string) ([]byte, error) {
	documents, err := decodeFiles([]string{objectPath})
	if err != nil {
		return nil, err
	}
	patch, err := os.ReadFile(patchPath)
	if err != nil {
		return nil, err
	}
	if patch, err = yaml.YAMLToJSONStrict(patch); err != nil {
		return nil, fmt.Errorf("%s: %w", patchPath, err)
	}
	for _, d := range documents {
		switch d.object.(type) {
		case *apps.Deployment, *apps.StatefulSet, *apps.DaemonSet:
			original, err := yaml.YAMLToJSONStrict(d.bytes)
			if err != nil {
				return nil, err
			}
			merged, err := strategicpatch.StrategicMergePatch(original, patch, d.object)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", patchPath, err)
			}
			return yaml.JSONToYAML(merged)
		}
	}
	return nil, fmt.Errorf("%s: no Deployment, StatefulSet or DaemonSet", objectPath)
}

func podSpec(object runtime.Object) *core.PodSpec {
	switch workload := object.(type) {
	case *apps.Deployment:
		return &workload.Spec.Template.Spec
	case *apps.StatefulSet:
		return &workload.Spec.Template.Spec
	case *apps.DaemonSet:
		return &workload.Spec.Template.Spec
	}
	return nil
}

// sameRules fails unless the PrometheusRule has the groups of all rule files, in the order of the files.
func sameRules(documents []document, paths []string) error {
	want := struct{ Groups []any }{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var file struct{ Groups []any }
		if err := yaml.UnmarshalStrict(text, &file); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		want.Groups = append(want.Groups, file.Groups...)
	}
	found := 0
	for _, d := range documents {
		if d.kind != "PrometheusRule" {
			continue
		}
		var rule struct{ Spec struct{ Groups []any } }
		if err := yaml.Unmarshal(d.bytes, &rule); err != nil {
			return err
		}
		if !reflect.DeepEqual(rule.Spec.Groups, want.Groups) {
			return fmt.Errorf("the PrometheusRule differs from %s", strings.Join(paths, ", "))
		}
		found++
	}
	if found == 0 {
		return errors.New("no PrometheusRule")
	}
	return nil
}

// Versions of the Pod Security Standard: for the oldest Kubernetes that the chart allows, for a later one, and for the
// newest.
var standards = []securityapi.Version{securityapi.MajorMinorVersion(1, 27), securityapi.MajorMinorVersion(1, 32), securityapi.LatestVersion()}

func restricted(documents []document) error {
	evaluator, err := security.NewEvaluator(security.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	var problems []error
	pods := 0
	for _, d := range documents {
		spec := podSpec(d.object)
		if spec == nil {
			continue
		}
		pods++
		for _, version := range standards {
			level := securityapi.LevelVersion{Level: securityapi.LevelRestricted, Version: version}
			for _, result := range evaluator.EvaluatePod(level, &meta.ObjectMeta{}, spec) {
				if !result.Allowed {
					problems = append(problems, fmt.Errorf("%s, Kubernetes %s: %s: %s", d.kind, version, result.ForbiddenReason, result.ForbiddenDetail))
				}
			}
		}
	}
	fmt.Printf("%d pods\n", pods)
	if pods == 0 {
		problems = append(problems, errors.New("no Deployment, StatefulSet or DaemonSet"))
	}
	return errors.Join(problems...)
}

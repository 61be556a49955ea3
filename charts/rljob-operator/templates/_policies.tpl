{{- /* Parts that several of the policies share: admission policies in CEL, without a webhook. They limit what an RLJob may
request on behalf of its author, and what only the operator may write. Reasons: docs/design/0012-*.md. What each policy
rejects: docs/guides/policies.md. */}}

{{- define "rljob.policyName" -}}
{{- $name := include "rljob.fullname" . }}
{{- if .Values.operator.watchNamespace }}
{{- printf "%s-%s" .Release.Namespace $name }}
{{- else }}
{{- $name }}
{{- end }}
{{- end }}

{{- define "rljob.operatorUser" -}}
{{- printf "system:serviceaccount:%s:%s" .Release.Namespace (include "rljob.serviceAccountName" .) }}
{{- end }}

{{- define "rljob.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels: {{- include "rljob.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [{{ .action | default "Deny" }}]
  {{- with .root.Values.operator.watchNamespace }}
  matchResources:
    namespaceSelector:
      matchLabels:
        kubernetes.io/metadata.name: {{ . }}
  {{- end }}
{{- end }}

{{- /* The policies on the operator itself apply in all namespaces, wherever its jobs may be. */}}
{{- define "rljob.operatorPolicyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels: {{- include "rljob.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}

{{- /* The value of the label rljob.dev/built-in, as owner_label in control/builtin_recipes.py returns it. */}}
{{- define "rljob.builtInOwner" -}}
{{- $text := printf "%s.%s" .Release.Namespace (include "rljob.fullname" .) }}
{{- if le (len $text) 63 }}
{{- $text }}
{{- else }}
{{- sha256sum $text | trunc 32 }}
{{- end }}
{{- end }}

{{- /* The accelerator classes of the release merged with the value `accelerators`, as the operator merges them. */}}
{{- define "rljob.acceleratorTable" -}}
{{- mergeOverwrite (.Files.Get "files/accelerators.yaml" | fromYaml) (deepCopy .Values.accelerators) | toYaml }}
{{- end }}

{{- /* One field of the table as a CEL map from class to value. */}}
{{- define "rljob.celMap" -}}
{{- $entries := list }}
{{- $field := .field }}
{{- range $class, $row := .table }}
{{- $value := get $row $field }}
{{- if $value }}
{{- $entries = append $entries (printf "'%s': %s" $class (kindIs "string" $value | ternary (printf "'%v'" $value) (printf "%v" $value))) }}
{{- end }}
{{- end }}
{{- printf "{%s}" (join ", " $entries) }}
{{- end }}

{{- /* Metadata may change freely, and users who may update a job may suspend, resume and stop it. */}}
{{- define "rljob.cel.specChanges" -}}
- name: what-runs-changes
  expression: >-
    request.operation == 'CREATE'
    || dyn(object).?spec.orValue({}).exists(k,
      !(k in ['suspend', 'stop']) && dyn(object).spec[k] != dyn(oldObject).?spec[?k].orValue(null))
    || dyn(oldObject).?spec.orValue({}).exists(k,
      !(k in ['suspend', 'stop']) && !(k in dyn(object).?spec.orValue({})))
{{- end }}

{{- /* The spec of a job, or the template of a recipe, and its parts that are core/v1 types. */}}
{{- define "rljob.cel.spec" -}}
- name: me
  expression: dyn(object)
- name: field
  expression: "object.kind == 'RLJob' ? 'spec' : 'spec.template'"
- name: spec
  expression: "object.kind == 'RLJob' ? variables.me.?spec.orValue({}) : variables.me.?spec.?template.orValue({})"
- name: templates
  expression: >-
    [variables.spec.?head.?template.orValue({})]
    + variables.spec.?workerGroups.orValue([]).map(g, g.?template.orValue({}))
# podSpecPatch is text, which CEL cannot read. It may name no Secret and no image, and the policy on pods judges what the
# operator makes of it.
- name: patches
  expression: "[dyn({})]"
# One list for each pod.
- name: containers
  expression: >-
    variables.templates.map(t, t.?initContainers.orValue([]) + t.?sidecars.orValue([]))
    + variables.patches.map(p, p.?containers.orValue([]) + p.?initContainers.orValue([]))
{{- end }}

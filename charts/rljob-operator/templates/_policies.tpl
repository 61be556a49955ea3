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
  validationActions: [Deny]
  {{- with .root.Values.operator.watchNamespace }}
  matchResources:
    namespaceSelector:
      matchLabels:
        kubernetes.io/metadata.name: {{ . }}
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

{{- /* Metadata may change freely, and users who may update a job may suspend and resume it. */}}
{{- define "rljob.cel.specChanges" -}}
- name: what-runs-changes
  expression: >-
    request.operation == 'CREATE'
    || dyn(object).?spec.orValue({}).exists(k,
      k != 'suspend' && dyn(object).spec[k] != dyn(oldObject).?spec[?k].orValue(null))
    || dyn(oldObject).?spec.orValue({}).exists(k, k != 'suspend' && !(k in dyn(object).?spec.orValue({})))
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

{{- /* Annotations of the namespace take precedence over the chart's values. Lists contain allowed values; '*' allows everything. */}}
{{- define "rljob.cel.limits" -}}
{{- $limits := .Values.policies.limits }}
- name: limits
  expression: namespaceObject.metadata.?annotations.orValue({})
- name: place
  expression: "'namespace ' + request.namespace"
- name: maxCards
  expression: variables.limits[?'limits.rljob.dev/max-cards'].orValue('{{ $limits.maxCards }}').trim()
- name: hostNetwork
  expression: variables.limits[?'limits.rljob.dev/host-network'].orValue('{{ $limits.hostNetwork }}').trim()
- name: privileged
  expression: variables.limits[?'limits.rljob.dev/privileged'].orValue('{{ $limits.privileged }}').trim()
{{- range $name, $values := dict "classes" $limits.classes "images" $limits.images "recipes" $limits.recipes "hostPathsAllowed" $limits.hostPaths }}
- name: {{ $name }}{{ eq $name "images" | ternary "Allowed" "" }}
  expression: >-
    variables.limits[?'limits.rljob.dev/{{ eq $name "hostPathsAllowed" | ternary "host-paths" $name }}']
    .orValue('{{ join "," $values }}').split(',').map(x, x.trim())
{{- end }}
{{- end }}

{{- /* What a pod or a container requires of its node, following the baseline of Pod Security. */}}
{{- define "rljob.cel.judgements" -}}
- name: strangeImages
  expression: >-
    variables.imagesAllowed == ['*'] ? [] : variables.images.filter(i, !variables.imagesAllowed.exists(e, e != '' && (
      i == e || i.startsWith(e.endsWith('/') ? e : e + '/') || i.startsWith(e + '@')
      || i.startsWith(e + ':') && !i.substring(size(e) + 1).contains('/'))))
- name: strangePaths
  expression: >-
    variables.hostPathsAllowed == ['*'] ? [] : variables.hostPaths.filter(p,
      p.contains('..') || !variables.hostPathsAllowed.exists(e, e != '' && (
        p == e || p.startsWith(e.endsWith('/') ? e : e + '/'))))
- name: onTheNetworkOfTheNode
  expression: >-
    {{ .pods }}.exists(p, p.?hostNetwork.orValue(false))
    || {{ .containers }}.exists(list, list.exists(c, c.?ports.orValue([]).exists(p, p.?hostPort.orValue(0) != 0)))
- name: withPrivileges
  expression: >-
    {{ .pods }}.exists(p,
      p.?hostPID.orValue(false) || p.?hostIPC.orValue(false)
      || size(p.?securityContext.?sysctls.orValue([])) > 0
      || p.?securityContext.?seccompProfile.?type.orValue('') == 'Unconfined'
      || p.?securityContext.?appArmorProfile.?type.orValue('') == 'Unconfined')
    || {{ .containers }}.exists(list, list.exists(c,
      c.?securityContext.?privileged.orValue(false)
      || size(c.?securityContext.?capabilities.?add.orValue([])) > 0
      || c.?securityContext.?procMount.orValue('Default') != 'Default'
      || c.?securityContext.?seccompProfile.?type.orValue('') == 'Unconfined'
      || c.?securityContext.?appArmorProfile.?type.orValue('') == 'Unconfined'))
{{- end }}

{{- define "rljob.cel.commonValidations" -}}
- expression: size(variables.strangeImages) == 0
  messageExpression: >-
    {{ .field }} + ': image ' + variables.strangeImages.join(', ') + ': ' + variables.place + ' allows only images of '
    + variables.imagesAllowed.join(', ') + ' (limits.rljob.dev/images); use one of those'
- expression: size(variables.strangePaths) == 0
  messageExpression: >-
    {{ .field }} + ': hostPath ' + variables.strangePaths.join(', ') + ': ' + variables.place + ' allows '
    + (variables.hostPathsAllowed.join('') == '' ? 'no hostPath' : 'only paths below ' + variables.hostPathsAllowed.join(', '))
    + ' (limits.rljob.dev/host-paths); use a PersistentVolumeClaim'
- expression: variables.hostNetwork == 'true' || !variables.onTheNetworkOfTheNode
  messageExpression: >-
    {{ .field }} + ': hostNetwork or a hostPort: ' + variables.place
    + ' does not allow the host network (limits.rljob.dev/host-network); use network.mode Pod'
- expression: variables.privileged == 'true' || !variables.withPrivileges
  messageExpression: >-
    {{ .field }} + ': a container or podSpecPatch is privileged, adds capabilities, uses the PID or IPC namespace of the node, '
    + 'sets sysctls or is unconfined: ' + variables.place
    + ' does not allow this (limits.rljob.dev/privileged); remove it'
{{- end }}
